"""The mathematics behind the methods: pure functions, each with its own tests. Nothing here depends on a method."""
