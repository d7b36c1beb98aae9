"""The checks of every call before a method sees it, in order: leader epoch, shape, backend sets by digest, revision.

The contract fixes the order. The peer is checked before; permissions in the cloud and existence come after, in this order, and
are the provider's to check.
"""

from cloudprovider_sdk.checks.leadership import Leadership, Term
from cloudprovider_sdk.checks.revisions import Revisions
from cloudprovider_sdk.checks.sets import BackendSets
from cloudprovider_sdk.checks.shape import check, fit, items

__all__ = ["BackendSets", "Leadership", "Revisions", "Term", "check", "fit", "items"]
