package emulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// What the services on an instance and beside a pod ask of whoever wants credentials: a session of IMDSv2, a pod's token.
const (
	session  = "imds-session"
	PodToken = "pod-token"
)

// identity answers as the instance metadata service of an instance, and as the agent of EKS Pod Identity: with credentials whose
// access keys say where they come from.
func (d *Door) identity(answer http.ResponseWriter, request *http.Request) {
	path := strings.TrimPrefix(request.URL.Path, "/latest/meta-data/")
	d.journal.mutex.Lock()
	self := d.journal.self
	d.journal.mutex.Unlock()
	switch {
	case request.URL.Path == "/pod-identity" && request.Header.Get("Authorization") == PodToken:
		lend(answer, "OfThePod")
	case request.URL.Path == "/latest/api/token" && request.Method == http.MethodPut:
		answer.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
		fmt.Fprint(answer, session)
	case request.Header.Get("X-Aws-Ec2-Metadata-Token") != session:
		http.Error(answer, "the emulator wants a token", http.StatusUnauthorized)
	case path == "instance-id" && self != "":
		fmt.Fprint(answer, self)
	case path == "placement/region":
		fmt.Fprint(answer, Region)
	case path == "iam/security-credentials/" || path == "iam/security-credentials-extended/":
		fmt.Fprint(answer, "role")
	case path == "iam/security-credentials/role" || path == "iam/security-credentials-extended/role":
		lend(answer, "OfTheInstance")
	default:
		http.NotFound(answer, request)
	}
}

func lend(answer http.ResponseWriter, key string) {
	json.NewEncoder(answer).Encode(map[string]string{
		"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": key, "SecretAccessKey": "emulated", "Token": "emulated",
		"LastUpdated": time.Now().UTC().Format(time.RFC3339), "Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	})
}
