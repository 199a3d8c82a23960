"""The commands: thin edges that read arguments, call the package and print what it answers."""
