"""Names and values that both ends must agree on. Their source is the comments of the `.proto` files."""

from typing import Final

ERROR_DOMAIN: Final = "cloudprovider.ccm"
"""`google.rpc.ErrorInfo.domain` of every error of the contract."""

DISCOVERY: Final = "ccm.discovery.v1.Discovery"
CLOUD_PROVIDER: Final = "ccm.cloudprovider.v1alpha1.CloudProvider"
INSTANCES: Final = "ccm.cloudprovider.v1alpha1.Instances"
LOAD_BALANCERS: Final = "ccm.cloudprovider.v1alpha1.LoadBalancers"
ROUTES: Final = "ccm.cloudprovider.v1alpha1.Routes"
VOLUMES: Final = "ccm.cloudprovider.v1alpha1.Volumes"
CLUSTERS: Final = "ccm.cloudprovider.v1alpha1.Clusters"
HEALTH: Final = "grpc.health.v1.Health"
REFLECTION: Final = "grpc.reflection.v1alpha.ServerReflection"

# The contract's defaults, for what a provider does not advertise.
MAX_BATCH: Final = 500
MAX_PAGE_SIZE: Final = 500
MAX_CONCURRENT_READS: Final = 16
MAX_CONCURRENT_MUTATIONS: Final = 8
MAX_MESSAGE_BYTES: Final = 16 << 20
LEAST_MAX_MESSAGE_BYTES: Final = 4 << 20
MOST_MAX_MESSAGE_BYTES: Final = 64 << 20
BOOKMARK_INTERVAL_SECONDS: Final = 30.0
WATCH_MAX_AGE_SECONDS: Final = 1800.0

MAX_ERROR_DETAIL_BYTES: Final = 4 << 10
MAX_MESSAGE_TEXT_BYTES: Final = 1 << 10
LONGEST_DEADLINE_SECONDS: Final = 600.0
