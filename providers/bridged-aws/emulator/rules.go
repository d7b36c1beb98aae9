package emulator

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Rule is what happens to the calls of one action, instead of what moto would do.
type Rule struct {
	// Action is the action as IAM has it, such as "ec2:DescribeInstances", or a pattern, such as "elasticloadbalancing:*".
	Action string `json:"action"`
	// Except are actions that it leaves alone.
	Except []string `json:"except,omitempty"`
	// Code refuses a call with this error code, Status as its HTTP status, 400 by default, and Message in these words.
	Code    string `json:"code,omitempty"`
	Status  int    `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
	// Times is how many calls are refused; all of them by default.
	Times int `json:"times,omitempty"`
	// Skip is how many calls pass before that.
	Skip int `json:"skip,omitempty"`
	// Lost lets the call happen, and its caller hear nothing of it.
	Lost bool `json:"lost,omitempty"`
	// Size and PerSecond make a token bucket, which refuses a call only while it is empty.
	Size      float64 `json:"size,omitempty"`
	PerSecond float64 `json:"per_second,omitempty"`

	tokens float64
	at     time.Time
}

// applies says whether the rule refuses this call, and counts it.
func (r *Rule) applies(action string, now time.Time) bool {
	matches, err := path.Match(r.Action, action)
	switch {
	case err != nil || !matches || r.Times < 0 || slices.Contains(r.Except, action):
		return false
	case r.Skip > 0:
		r.Skip--
		return false
	case r.Size > 0:
		if r.at.IsZero() {
			r.tokens = r.Size
		} else {
			r.tokens = min(r.Size, r.tokens+now.Sub(r.at).Seconds()*r.PerSecond)
		}
		r.at = now
		if r.tokens >= 1 {
			r.tokens--
			return false
		}
	case r.Times == 1:
		r.Times = -1
	case r.Times > 1:
		r.Times--
	}
	return true
}

// journal counts the calls of each action, and holds the rules for them.
type journal struct {
	mutex sync.Mutex
	calls map[string]int
	// callers are the access keys, and what else tells on whose behalf a call is made.
	callers map[string]bool
	rules   []Rule
	// self is the instance on which callers believe to run.
	self string
}

var scope = regexp.MustCompile(`Credential=([^/]+)/\d+/[^/]+/([^/]+)/aws4_request`)

// note counts a request, whose body it reads and puts back, and returns the rule that refuses it, if any.
func (j *journal) note(request *http.Request) (*Rule, error) {
	signed := scope.FindStringSubmatch(request.Header.Get("Authorization"))
	if signed == nil {
		// A role is assumed with a token instead.
		signed = []string{"", "unsigned", "sts"}
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	action := signed[2] + ":" + form.Get("Action")
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.calls[action]++
	for _, caller := range []string{signed[1], request.Header.Get("X-Amz-Source-Account"), request.Header.Get("X-Amz-Source-Arn")} {
		if caller != "" {
			j.callers[caller] = true
		}
	}
	for i := range j.rules {
		if rule := &j.rules[i]; rule.applies(action, time.Now()) {
			refused := *rule
			return &refused, nil
		}
	}
	return nil, nil
}

// Calls returns how often each action was called through this door, refused calls included.
func (d *Door) Calls() map[string]int {
	d.journal.mutex.Lock()
	defer d.journal.mutex.Unlock()
	return maps.Clone(d.journal.calls)
}

// Callers returns the access keys of all calls, and the accounts and resources on whose behalf roles were assumed.
func (d *Door) Callers() []string {
	d.journal.mutex.Lock()
	defer d.journal.mutex.Unlock()
	return slices.Sorted(maps.Keys(d.journal.callers))
}

// RunOn lets callers believe that they run on an instance.
func (d *Door) RunOn(id string) {
	d.journal.mutex.Lock()
	defer d.journal.mutex.Unlock()
	d.journal.self = id
}

// SetRules replaces all rules.
func (d *Door) SetRules(rules []Rule) {
	d.journal.mutex.Lock()
	defer d.journal.mutex.Unlock()
	d.journal.rules = rules
}

// apply refuses a request as a rule says.
func (r Rule) apply(answer http.ResponseWriter) {
	status, code := r.Status, r.Code
	if code == "" {
		// EC2's own answer to too many calls.
		status, code = http.StatusServiceUnavailable, "RequestLimitExceeded"
		if !strings.HasPrefix(r.Action, "ec2:") {
			status, code = http.StatusBadRequest, "Throttling"
		}
	}
	if status == 0 {
		status = http.StatusBadRequest
	}
	refuse(answer, status, code, r.Message, strings.HasPrefix(r.Action, "ec2:"))
}
