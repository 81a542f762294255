"""How the product is run on more than one machine: the image, the compose file, and the same topology as processes on this machine.

Belongs here: what an operations team starts from. Does not belong: the product, which imports nothing of this folder.
"""
