"""The pages of the console: each has one router here, over a typed reader, and one ES module."""
