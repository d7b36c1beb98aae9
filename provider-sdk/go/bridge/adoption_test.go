package bridge_test

import (
	"testing"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// H4: names alone decide whose a balancer is, before and after a restart: a former controller's is taken over with the first
// Ensure, whatever the request says of adoption, and what was taken over is always deleted with its Service.
func TestNamesDecideWhoseABalancerIs(t *testing.T) {
	for _, adoption := range []pb.Adoption{pb.Adoption_ADOPTION_REFUSE, pb.Adoption_ADOPTION_ADOPT_BY_LEGACY_NAME} {
		t.Run(adoption.String(), func(t *testing.T) {
			cloud := stands()
			cloud.has = "79 a"
			request := ensureRequest("s")
			request.Adoption = adoption
			t.Run("process", func(t *testing.T) {
				if _, err := pb.NewLoadBalancersClient(serve(t, cloud)).EnsureLoadBalancer(soon(t), request); err != nil || cloud.has != "80 a b" {
					t.Error(cloud.has, err)
				}
			})
			t.Run("process", func(t *testing.T) {
				gone := deleteRequest("s")
				gone.Adoption = adoption
				if _, err := pb.NewLoadBalancersClient(serve(t, cloud)).DeleteLoadBalancer(soon(t), gone); err != nil || cloud.has != "" {
					t.Error(cloud.has, err)
				}
			})
		})
	}
}
