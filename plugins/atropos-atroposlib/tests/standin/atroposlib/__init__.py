"""Test data: the names of atroposlib that environments and the bridge use, without its dependencies."""
