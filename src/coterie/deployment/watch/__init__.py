"""What a server watches for its operator: exposure of items, norms of nodes, and alarms.

It looks at the shared model and at updates in the clear, never at users, and changes nothing.
"""
