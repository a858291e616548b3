"""How other systems that sites run share over time, as exact rankings of a live pool.

Each is what its original would do if it looked at every instant. In what they do differently
because they look now and then, they are imitated by `allocator/simulation/originals`.
"""
