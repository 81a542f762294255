"""This package profiles columns: it computes mergeable states of each partition, shows them as a page, and proposes rules from them."""
