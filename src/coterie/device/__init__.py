"""The page that is a client of a federation: its files are in `static`, for a gateway to serve.

The modules in `static` are plain ES modules without dependencies. They run in a browser, in a Web
Worker and in Node.js, where the tests compare them with the Python code that they repeat.
"""
