"""A project: its folders and variables, its YAML with places in it, its stored catalogs, and the files of a new one."""
