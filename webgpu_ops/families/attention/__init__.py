"""The attention operators: descriptors around one core.

``core`` holds the plan vocabulary and the only softmax, ``cache`` what brings new keys and values to
memory. An operator checks its inputs, says where Q, K, V and the output lie, and calls ``attend``.
"""
