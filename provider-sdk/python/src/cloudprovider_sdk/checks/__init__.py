"""What is checked of every call before a method sees it, in order: leader epoch, shape, sets by their digests, revision.

The order is the contract's. The peer comes before; rights in the cloud and existence come after and are the provider's
to check, in this order.
"""

from cloudprovider_sdk.checks.fences import Fences
from cloudprovider_sdk.checks.leadership import Leadership, Term
from cloudprovider_sdk.checks.revisions import Revisions
from cloudprovider_sdk.checks.sets import BackendSets
from cloudprovider_sdk.checks.shape import check, fit, items

__all__ = ["BackendSets", "Fences", "Leadership", "Revisions", "Term", "check", "fit", "items"]
