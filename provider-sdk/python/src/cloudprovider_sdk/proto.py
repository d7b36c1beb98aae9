"""The messages of the contract: the data types of every service in this package."""

from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.cloud_provider_pb2 import *  # noqa: F403
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.cluster_pb2 import *  # noqa: F403
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.clusters_pb2 import *  # noqa: F403
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.effects_pb2 import *  # noqa: F403
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.errors_pb2 import *  # noqa: F403
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.instances_pb2 import *  # noqa: F403
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.load_balancers_pb2 import *  # noqa: F403
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.node_pb2 import *  # noqa: F403
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.options_pb2 import *  # noqa: F403
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.routes_pb2 import *  # noqa: F403
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.service_pb2 import *  # noqa: F403
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.volumes_pb2 import *  # noqa: F403
