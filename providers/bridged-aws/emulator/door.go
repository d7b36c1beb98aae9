package emulator

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// The states of a door. It can also be set to a status code of 400 or more, with which it then refuses every request.
const (
	// Open lets requests through.
	Open = "open"
	// Half executes a request, but breaks off in the middle of the answer.
	Half = "half"
	// Nothing holds a request until the caller gives up.
	Nothing = "nothing"
	// Slow answers after a second.
	Slow = "slow"
)

// codes are AWS's own error codes, where the text of the status line is not one.
var codes = map[int]string{
	http.StatusUnauthorized: "AuthFailure", http.StatusForbidden: "UnauthorizedOperation",
	http.StatusTooManyRequests: "RequestLimitExceeded",
}

// Door is a proxy in front of moto that counts calls, and can fail them as a cloud in trouble does.
type Door struct {
	// URL is the endpoint for the provider's cloud config.
	URL   string
	state atomic.Value
	// balancers is the state that network balancers are in instead of serving.
	balancers atomic.Value
	moto      *httputil.ReverseProxy
	server    http.Server
	journal
}

// NewDoor opens a door to moto on a free port of the loopback address.
func NewDoor(moto string) (*Door, error) {
	target, err := url.Parse(moto)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	door := &Door{URL: "http://" + listener.Addr().String(), journal: journal{calls: map[string]int{}, callers: map[string]bool{}}}
	door.moto = &httputil.ReverseProxy{
		Rewrite:        func(request *httputil.ProxyRequest) { request.SetURL(target) },
		ModifyResponse: door.change,
	}
	door.server.Handler = door
	door.state.Store(Open)
	door.balancers.Store("active")
	go door.server.Serve(listener)
	return door, nil
}

// Set sets what the door does with requests from now on: [Open], [Half], [Nothing], [Slow], or a status code to refuse them with.
func (d *Door) Set(state string) error {
	code, err := strconv.Atoi(state)
	isCode := err == nil && code >= 400 && code < 600
	if states := []string{Open, Half, Nothing, Slow}; !isCode && !slices.Contains(states, state) {
		return fmt.Errorf("unknown door state %q; use %s, or a status code from 400 to 599", state, strings.Join(states, ", "))
	}
	d.state.Store(state)
	return nil
}

// Balancers sets the state of all network balancers: "active", as in moto they are at once, "provisioning", as in AWS they are for
// minutes after they are made, or "failed".
func (d *Door) Balancers(state string) { d.balancers.Store(state) }

// Close stops the proxy.
func (d *Door) Close() error { return d.server.Close() }

func (d *Door) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	if strings.HasPrefix(request.URL.Path, "/latest/") || request.URL.Path == "/pod-identity" {
		d.identity(answer, request)
		return
	}
	rule, err := d.note(request)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	if rule != nil && rule.Lost {
		d.moto.ServeHTTP(httptest.NewRecorder(), request)
		panic(http.ErrAbortHandler)
	}
	if rule != nil {
		rule.apply(answer)
		return
	}
	switch state := d.state.Load().(string); state {
	case Slow:
		time.Sleep(time.Second)
		fallthrough
	case Open, Half:
		d.moto.ServeHTTP(answer, request)
	case Nothing:
		// The server notices that the caller has disconnected only after it has read the request.
		io.Copy(io.Discard, request.Body)
		<-request.Context().Done()
	default:
		status, _ := strconv.Atoi(state)
		code, known := codes[status]
		if !known {
			code = strings.ReplaceAll(http.StatusText(status), " ", "")
		}
		refuse(answer, status, code, "", strings.Contains(request.Header.Get("Authorization"), "/ec2/"))
	}
}

// change drops the second half of the answer if the state is [Half], and lets balancers start.
func (d *Door) change(response *http.Response) error {
	cuts := d.state.Load() == Half
	state := d.balancers.Load().(string)
	if !cuts && state == "active" {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	err = errors.Join(err, response.Body.Close())
	if cuts {
		response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), broken{}))
		return err
	}
	told := "<Code>" + state + "</Code>"
	if state == "failed" {
		told += "<Reason>the emulator was told so</Reason>"
	}
	body = bytes.ReplaceAll(body, []byte("<Code>active</Code>"), []byte(told))
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return err
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// refuse answers with an error in the format of EC2 or of Elastic Load Balancing.
func refuse(answer http.ResponseWriter, status int, code, message string, isEC2 bool) {
	type failure struct {
		Code    string `xml:"Code"`
		Message string `xml:"Message"`
	}
	switch {
	case message != "":
	case code == "AuthFailure":
		// With other words it means that whoever is known may not do it.
		message = "AWS was not able to validate the provided access credentials"
	default:
		message = "the emulator was told to refuse"
	}
	body := any(struct {
		XMLName xml.Name `xml:"ErrorResponse"`
		Error   failure
	}{Error: failure{code, message}})
	if isEC2 {
		body = struct {
			XMLName xml.Name `xml:"Response"`
			Error   failure  `xml:"Errors>Error"`
		}{Error: failure{code, message}}
	}
	answer.Header().Set("Content-Type", "text/xml")
	answer.WriteHeader(status)
	xml.NewEncoder(answer).Encode(body)
}
