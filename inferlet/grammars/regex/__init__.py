"""Regular languages: a tree, two dialects that are parsed into it, and its spellings."""
