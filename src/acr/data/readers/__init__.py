"""Reading what strangers made: archives, pickles, image files, downloads. Nothing here runs what it reads."""
