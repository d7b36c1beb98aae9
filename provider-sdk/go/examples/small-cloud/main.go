// A whole provider for a small cloud, whose REST API tests/small-cloud describes: instances with a watch, load balancers that
// keep their digest, and routes.
//
// Every call reads the cloud anew. The SDK does the rest: leadership, one mutation at a time for each Service, shapes,
// deadlines, sets of backends, pages.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	prefix = "small://"
	// atOnce is how many requests of one batch run at once.
	atOnce = 16
	// callWithin bounds one request; a change of which nobody hears for so long is asked for again.
	callWithin = 30 * time.Second
)

// provider serves all parts: it calls the cloud's API, and remembers how the last call ended.
type provider struct {
	url, token string
	http       http.Client

	mu   sync.Mutex
	last error
}

// call sends a request and decodes the answer. An answer that is an error becomes the contract's.
func call[Out any](ctx context.Context, p *provider, method, path string, in any) (out Out, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	request, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	request.Header.Set("Authorization", "Bearer "+p.token)
	text, err := p.send(request)
	if ctx.Err() == nil { // A caller that has gone says nothing about the cloud.
		p.mu.Lock()
		p.last = err
		p.mu.Unlock()
	}
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(text, &out)
}

func (p *provider) send(request *http.Request) ([]byte, error) {
	answer, err := p.http.Do(request)
	if err != nil {
		return nil, fault.CloudAPIUnavailable(fault.WithCause(err))
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fault.CloudAPIUnavailable(fault.WithCause(err))
	}
	return text, refused(answer, string(text))
}

var (
	errNotFound = errors.New("the cloud has no such object")
	errChanged  = errors.New("the object has changed")
)

func refused(answer *http.Response, text string) error {
	switch answer.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized:
		return fault.CloudCredentialsInvalid()
	case http.StatusForbidden:
		return fault.CloudPermissionDenied(answer.Request.Method + " " + answer.Request.URL.Path)
	case http.StatusNotFound:
		return errNotFound
	case http.StatusConflict:
		return errChanged
	case http.StatusUnprocessableEntity:
		return fault.QuotaExceeded("the project", text)
	case http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After")) // 0 leaves the time to the SDK.
		return fault.RateLimited(time.Duration(seconds) * time.Second)
	case http.StatusServiceUnavailable:
		return fault.CloudAPIUnavailable(fault.WithCause(errors.New(text)))
	}
	return fault.Internal(fmt.Errorf("%s %s: status %d: %s", answer.Request.Method, answer.Request.URL, answer.StatusCode, text))
}

// GetStatus tells how the last call ended.
func (p *provider) GetStatus(context.Context, *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := &pb.GetStatusResponse{}
	for of, reason := range map[pb.ConditionType]pb.ErrorReason{
		pb.ConditionType_CONDITION_TYPE_CLOUD_REACHABLE:   pb.ErrorReason_ERROR_REASON_CLOUD_API_UNAVAILABLE,
		pb.ConditionType_CONDITION_TYPE_CREDENTIALS_VALID: pb.ErrorReason_ERROR_REASON_CLOUD_CREDENTIALS_INVALID,
	} {
		condition := &pb.ProviderCondition{Type: of, Status: pb.ConditionStatus_CONDITION_STATUS_TRUE}
		if fault.ReasonOf(p.last) == reason {
			condition.Status, condition.Reason = pb.ConditionStatus_CONDITION_STATUS_FALSE, "LastCallFailed"
		}
		answer.Conditions = append(answer.Conditions, condition)
	}
	return answer, nil
}

// Instances.

type server struct{ ID, Name, Status, Zone, Type, IP string }

func (s server) instance() *pb.Instance {
	return &pb.Instance{
		ProviderId: prefix + s.ID, Name: s.Name, InstanceType: s.Type, Zone: s.Zone,
		Addresses: []*pb.NodeAddress{{Type: pb.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP, Address: s.IP}},
	}
}

func (s server) state() pb.InstanceState {
	if s.Status == "stopped" {
		return pb.InstanceState_INSTANCE_STATE_STOPPED
	}
	return pb.InstanceState_INSTANCE_STATE_RUNNING
}

// BatchGetInstances answers all queries from one list.
func (p *provider) BatchGetInstances(ctx context.Context, request *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
	all, err := call[[]server](ctx, p, "GET", "/servers", nil)
	if err != nil {
		return nil, err
	}
	found := map[string][]server{} // By provider ID, and by the name of a node that has none yet.
	for _, one := range all {
		found[prefix+one.ID], found[one.Name] = []server{one}, append(found[one.Name], one)
	}
	return &pb.BatchGetInstancesResponse{Results: mapped(request.GetQueries(), func(query *pb.InstanceQuery) *pb.InstanceResult {
		return lookUp(query, found[cmp.Or(query.GetNode().GetProviderId(), query.GetNode().GetName())])
	})}, nil
}

func lookUp(query *pb.InstanceQuery, found []server) *pb.InstanceResult {
	switch id := query.GetNode().GetProviderId(); {
	case id != "" && (!strings.HasPrefix(id, prefix) || id == prefix):
		return sdk.NotOwned(query.GetKey())
	case len(found) == 0:
		return sdk.Absent(query)
	case len(found) > 1:
		return sdk.Unknown(query.GetKey(), fault.InstanceAmbiguous(query.GetNode().GetName()))
	}
	return sdk.Found(query.GetKey(), found[0].state(), found[0].instance())
}

type changes struct {
	Last    int
	Servers []string
}

// WatchInstances asks the cloud for changes before the watch is said to have started.
func (p *provider) WatchInstances(ctx context.Context, _ *pb.WatchInstancesRequest) (*sdk.Watch, error) {
	now, err := call[changes](ctx, p, "GET", "/changes?after=-1", nil)
	events := make(chan sdk.WatchEvent)
	if err == nil {
		go p.follow(ctx, now.Last, events)
	}
	return &sdk.Watch{Events: events}, err
}

// follow sends the ids of changed servers until the caller has gone or the cloud fails; then the host watches again, and sweeps.
func (p *provider) follow(ctx context.Context, last int, events chan<- sdk.WatchEvent) {
	defer close(events)
	for {
		next, err := call[changes](ctx, p, "GET", fmt.Sprintf("/changes?after=%d", last), nil)
		news := mapped(next.Servers, func(id string) sdk.WatchEvent { return sdk.Changed(&pb.InstanceChanged{ProviderId: prefix + id}) })
		if err != nil {
			news = []sdk.WatchEvent{sdk.Failed(err)}
		}
		for _, event := range news {
			select {
			case events <- event:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
		last = next.Last
	}
}

// Load balancers. Their name has both uids; a tag has the digest.

type port struct {
	Protocol string `json:"protocol"`
	Port     int32  `json:"port"`
	NodePort int32  `json:"node_port"`
}

type balancer struct {
	Name      string            `json:"name"`
	Status    string            `json:"status"`
	Addresses []string          `json:"addresses"`
	Tags      map[string]string `json:"tags"`
	Ports     []port            `json:"ports"`
	Families  []string          `json:"families"`
	Sources   []string          `json:"sources"`
	Check     int32             `json:"check"`
	Servers   []string          `json:"servers"`
}

func pathOf(cluster *pb.ClusterRef, service *pb.ServiceRef) string {
	return "/balancers/" + url.PathEscape(cluster.GetUid()+"."+service.GetUid())
}

func (b balancer) proto() *pb.LoadBalancer {
	out := &pb.LoadBalancer{
		Service: &pb.ServiceRef{Namespace: b.Tags["namespace"], Name: b.Tags["service"], Uid: b.Tags["uid"]},
		Name:    b.Name, State: pb.LoadBalancerState_LOAD_BALANCER_STATE_PENDING, Ownership: pb.Ownership_OWNERSHIP_BY_UID,
	}
	for _, address := range b.Addresses {
		out.Ingress = append(out.Ingress, &pb.LoadBalancerIngress{Ip: address, IpMode: pb.IngressIpMode_INGRESS_IP_MODE_VIP})
	}
	if b.Status == "active" {
		out.State, out.AppliedDigest = pb.LoadBalancerState_LOAD_BALANCER_STATE_ACTIVE, b.Tags["digest"]
	}
	return out
}

// wanted translates a Service. What this cloud cannot do is refused by name, before anything changes.
func wanted(request *pb.EnsureLoadBalancerRequest) (*balancer, error) {
	service, ref := request.GetService(), request.GetService().GetRef()
	switch {
	case service.GetLoadBalancerIp() != "":
		return nil, fault.UnsupportedFeature("spec.loadBalancerIP", "the cloud chooses addresses")
	case service.GetClientIpAffinity() != nil:
		return nil, fault.UnsupportedFeature("spec.sessionAffinity", "the cloud's balancers know none")
	}
	out := &balancer{Sources: append([]string{}, service.GetSourceRanges()...), Servers: serversOf(request.GetBackends()), Tags: map[string]string{
		"cluster": request.GetCluster().GetUid(), "namespace": ref.GetNamespace(), "service": ref.GetName(), "uid": ref.GetUid(),
		"digest": request.GetDesiredDigest(),
	}}
	for at, one := range service.GetPorts() {
		if one.GetProtocol() == pb.Protocol_PROTOCOL_UNSPECIFIED {
			return nil, fault.UnsupportedFeature(fmt.Sprintf("spec.ports[%d].protocol", at), "the cloud does not know it")
		}
		protocol := strings.TrimPrefix(one.GetProtocol().String(), "PROTOCOL_")
		if one.GetNodePort() == 0 {
			return nil, fault.UnsupportedFeature("spec.allocateLoadBalancerNodePorts", "the cloud reaches pods by node ports")
		}
		out.Ports = append(out.Ports, port{protocol, one.GetPort(), one.GetNodePort()})
	}
	for _, family := range service.GetIpFamilies() {
		out.Families = append(out.Families, strings.TrimPrefix(family.String(), "IP_FAMILY_"))
	}
	if len(out.Families) == 0 {
		out.Families = []string{"IPV4"}
	}
	if service.GetExternalTrafficPolicy() == pb.TrafficPolicy_TRAFFIC_POLICY_LOCAL {
		out.Check = service.GetHealthCheckNodePort()
	}
	return out, nil
}

// serversOf returns the servers behind a balancer; a node without an instance gets no traffic.
func serversOf(backends *pb.BackendSet) []string {
	servers := []string{}
	for _, node := range backends.GetNodes() {
		if id, ours := strings.CutPrefix(node.GetProviderId(), prefix); ours {
			servers = append(servers, id)
		}
	}
	return servers
}

func (p *provider) EnsureLoadBalancer(ctx context.Context, request *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
	asked, err := wanted(request)
	if err != nil {
		return nil, err
	}
	made, err := call[balancer](ctx, p, "PUT", pathOf(request.GetCluster(), request.GetService().GetRef()), asked)
	if err != nil {
		return nil, err
	}
	answer := &pb.EnsureLoadBalancerResponse{LoadBalancer: made.proto()}
	if made.Status != "active" {
		answer.InProgress = &pb.InProgress{Reason: "BUILDING", Message: "the cloud builds the balancer", RetryAfter: durationpb.New(time.Second)}
	}
	return answer, nil
}

func (p *provider) BatchUpdateLoadBalancers(ctx context.Context, request *pb.BatchUpdateLoadBalancersRequest) (*pb.BatchUpdateLoadBalancersResponse, error) {
	servers := serversOf(request.GetBackends())
	return &pb.BatchUpdateLoadBalancersResponse{Results: each(request.GetItems(), func(item *pb.LoadBalancerUpdate) *pb.LoadBalancerUpdateResult {
		ref := item.GetService().GetRef()
		result := &pb.LoadBalancerUpdateResult{ServiceUid: ref.GetUid(), Outcome: pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED}
		change := &balancer{Servers: servers, Tags: map[string]string{"digest": item.GetDesiredDigest()}}
		_, err := call[balancer](ctx, p, "PATCH", pathOf(request.GetCluster(), ref), change)
		if errors.Is(err, errNotFound) {
			err = fault.NeedsEnsure(ref.GetUid()) // An update creates nothing.
		}
		if err != nil {
			result.Outcome, result.Error = pb.UpdateOutcome_UPDATE_OUTCOME_NOT_UPDATED, fault.Item(err)
		}
		return result
	})}, nil
}

func (p *provider) DeleteLoadBalancer(ctx context.Context, request *pb.DeleteLoadBalancerRequest) (*pb.DeleteLoadBalancerResponse, error) {
	_, err := call[struct{}](ctx, p, "DELETE", pathOf(request.GetCluster(), request.GetService()), nil)
	return &pb.DeleteLoadBalancerResponse{}, err
}

func (p *provider) GetLoadBalancer(ctx context.Context, request *pb.GetLoadBalancerRequest) (*pb.GetLoadBalancerResponse, error) {
	found, err := call[balancer](ctx, p, "GET", pathOf(request.GetCluster(), request.GetService()), nil)
	if errors.Is(err, errNotFound) {
		absent := &pb.LoadBalancer{Service: request.GetService(), State: pb.LoadBalancerState_LOAD_BALANCER_STATE_ABSENT}
		return &pb.GetLoadBalancerResponse{LoadBalancer: absent}, nil
	}
	return &pb.GetLoadBalancerResponse{LoadBalancer: found.proto()}, err
}

func (p *provider) ListLoadBalancers(ctx context.Context, request *pb.ListLoadBalancersRequest) (*pb.ListLoadBalancersResponse, error) {
	all, err := call[[]balancer](ctx, p, "GET", "/balancers?cluster="+url.QueryEscape(request.GetCluster().GetUid()), nil)
	if err != nil {
		return nil, err
	}
	page, next, err := sdk.Page(request, all, func(one balancer) string { return one.Name })
	return &pb.ListLoadBalancersResponse{LoadBalancers: mapped(page, balancer.proto), NextPageToken: next}, err
}

// Routes. Their name has the cluster's uid and the destination.

type route struct {
	Name   string            `json:"name"`
	CIDR   string            `json:"cidr"`
	Server string            `json:"server"`
	Status string            `json:"status"`
	Tags   map[string]string `json:"tags"`
}

func (r route) proto() *pb.Route {
	out := &pb.Route{
		Id: r.Name, DestinationCidr: r.CIDR, Target: &pb.NodeRef{Name: r.Tags["node"], ProviderId: prefix + r.Server},
		State: pb.RouteState_ROUTE_STATE_ACTIVE, Ownership: pb.Ownership_OWNERSHIP_BY_UID,
	}
	if r.Status == "broken" {
		out.State = pb.RouteState_ROUTE_STATE_BLACKHOLE
	}
	return out
}

func (p *provider) ListRoutes(ctx context.Context, request *pb.ListRoutesRequest) (*pb.ListRoutesResponse, error) {
	all, err := call[[]route](ctx, p, "GET", "/routes?cluster="+url.QueryEscape(request.GetCluster().GetUid()), nil)
	if err != nil {
		return nil, err
	}
	page, next, err := sdk.Page(request, all, func(one route) string { return one.Name })
	return &pb.ListRoutesResponse{Routes: mapped(page, route.proto), NextPageToken: next}, err
}

func (p *provider) BatchEnsureRoutes(ctx context.Context, request *pb.BatchEnsureRoutesRequest) (*pb.BatchEnsureRoutesResponse, error) {
	cluster := request.GetCluster().GetUid()
	return &pb.BatchEnsureRoutesResponse{Results: each(request.GetItems(), func(item *pb.RouteToEnsure) *pb.RouteResult {
		node := item.GetTarget()
		asked := route{
			// The cloud finds a server by its name, too, as long as the node has no provider ID.
			CIDR: item.GetDestinationCidr(), Server: cmp.Or(strings.TrimPrefix(node.GetProviderId(), prefix), node.GetName()),
			Tags: map[string]string{"cluster": cluster, "node": node.GetName()},
		}
		made, err := call[route](ctx, p, "PUT", "/routes/"+url.PathEscape(cluster+" "+asked.CIDR), asked)
		if errors.Is(err, errNotFound) {
			err = fault.InstanceNotFound(node.GetName())
		}
		if err != nil {
			return &pb.RouteResult{Key: item.GetKey(), Error: fault.Item(err)}
		}
		return &pb.RouteResult{Key: item.GetKey(), Route: made.proto()}
	})}, nil
}

// BatchDeleteRoutes lets the cloud compare the target, so that nobody changes it in between.
func (p *provider) BatchDeleteRoutes(ctx context.Context, request *pb.BatchDeleteRoutesRequest) (*pb.BatchDeleteRoutesResponse, error) {
	return &pb.BatchDeleteRoutesResponse{Results: each(request.GetItems(), func(item *pb.RouteToDelete) *pb.RouteDeletion {
		listed, result := item.GetRoute(), &pb.RouteDeletion{Key: item.GetKey()}
		if listed.GetOwnership() != pb.Ownership_OWNERSHIP_BY_UID || !strings.HasPrefix(listed.GetId(), request.GetCluster().GetUid()+" ") {
			result.Error = fault.Item(fault.OwnedByOtherCluster(listed.GetId()))
			return result
		}
		server := strings.TrimPrefix(listed.GetTarget().GetProviderId(), prefix)
		_, err := call[struct{}](ctx, p, "DELETE", "/routes/"+url.PathEscape(listed.GetId())+"?server="+url.QueryEscape(server), nil)
		if errors.Is(err, errChanged) {
			err = fault.RouteChanged(listed.GetId())
		}
		if err != nil {
			result.Error = fault.Item(err)
		}
		return result
	})}, nil
}

func mapped[In, Out any](items []In, to func(In) Out) (all []Out) {
	for _, item := range items {
		all = append(all, to(item))
	}
	return all
}

// each runs the items of a batch, several at once; the results are in their order.
func each[In, Out any](items []In, work func(In) Out) []Out {
	results, places := make([]Out, len(items)), make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for at, item := range items {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			results[at] = work(item)
		})
	}
	all.Wait()
	return results
}

func main() {
	cloud := flag.String("cloud", "", "`URL` of the cloud's API")
	tokenFile := flag.String("token-file", "", "`file` with the token for it")
	sdk.Main(func(context.Context) (*sdk.Provider, error) {
		token, err := os.ReadFile(*tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		p := &provider{url: *cloud, token: strings.TrimSpace(string(token)), http: http.Client{Timeout: callWithin}}
		return sdk.New("small",
			sdk.WithProviderIDPrefix(prefix), sdk.WithStatus(p), sdk.WithInstances(p), sdk.WithLoadBalancers(p), sdk.WithRoutes(p),
			sdk.WithCapabilities(&pb.GetCapabilitiesResponse{
				Capabilities: []pb.Capability{pb.Capability_CAPABILITY_DURABLE_DIGEST, pb.Capability_CAPABILITY_ROUTE_OWNERSHIP},
				Intervals:    &pb.Intervals{BookmarkInterval: durationpb.New(time.Second)},
			}))
	})
}
