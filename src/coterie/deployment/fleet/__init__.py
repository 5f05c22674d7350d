"""Server and nodes connected by Flower's Fleet API: protobuf messages over HTTP."""
