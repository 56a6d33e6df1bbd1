"""Reading files that are not trusted: archives, pickles, images, downloads. Nothing here executes what it reads."""
