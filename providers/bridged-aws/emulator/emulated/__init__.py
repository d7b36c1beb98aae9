"""AWS as the tests see it: moto, and AWS's own answer wherever moto's differs and a provider can tell.

Each module changes one part of moto when it is imported. The README lists each case.
"""
