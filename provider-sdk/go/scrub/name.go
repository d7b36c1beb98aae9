package scrub

import (
	"slices"
	"strings"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

var secretNames = []string{
	"password", "passwd", "passphrase", "secret", "token", "authorization", "credential",
	"apikey", "privatekey", "accesskey", "sessionkey", "signingkey", "bearer", "cookie",
}

var unspelled = strings.NewReplacer("-", "", "_", "", ".", "", " ", "")

// NamesSecret reports whether a field, a map key or an option of this name holds a secret.
func NamesSecret(name string) bool {
	// Reasons such as RESUME_TOKEN_EXPIRED precede a colon, too.
	if _, reason := pb.ErrorReason_value["ERROR_REASON_"+name]; reason {
		return false
	}
	plain := strings.ToLower(unspelled.Replace(name))
	return slices.ContainsFunc(secretNames, func(part string) bool { return strings.Contains(plain, part) })
}
