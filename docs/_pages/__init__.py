"""The generated pages of the reference. Each module has `pages()`, which yields (file name, text)."""
