"""The mathematics behind the methods: pure functions, each with tests of its own. Nothing here knows a method."""
