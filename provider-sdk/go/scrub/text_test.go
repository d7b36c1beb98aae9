package scrub

import (
	"strings"
	"testing"
)

const canary = "canary-hunter2"

func TestSecretsGoInEverySpelling(t *testing.T) {
	for _, row := range []string{
		"password=canary-hunter2",
		"password: canary-hunter2, next",
		`{"token":"canary-hunter2 with blanks","x":1}`,
		`{"message":"config {\"apiKey\": \"canary-hunter2\"}"}`,
		`{Password:canary-hunter2 Region:a}`,
		`{"authorization": ["Bearer canary-hunter2"]}`,
		"authorization: Bearer canary-hunter2",
		"got Bearer canary-hunter2 from the file",
		"https://user:canary-hunter2@cloud.example/v1",
		"--cloud-password=canary-hunter2 --x",
		"https://cloud.example/v1/token=canary-hunter2",
		"https://cloud.example/v1/servers?access_token=canary-hunter2",
		`annotations: {"example.io/api-token": "canary-hunter2"}`,
		`map[example.io/api-token:canary-hunter2]`,
		"-----BEGIN EC PRIVATE KEY-----\ncanary-hunter2\n-----END EC PRIVATE KEY-----",
		`key -----BEGIN PRIVATE KEY-----\ncanary-hunter2\n-----END PRIVATE KEY----- end`,
		"-----BEGIN PRIVATE KEY-----\ncanary-hunter2 cut off",
		"AWS_SECRET_ACCESS_KEY='canary-hunter2'",
		`password = "with \" quote canary-hunter2""`,
	} {
		clean := Text(row)
		if strings.Contains(clean, canary) || !strings.Contains(clean, Redacted) {
			t.Errorf("%s became %s", row, clean)
		}
	}
}

func TestLongRandomStringsGoWithoutAName(t *testing.T) {
	jwt := "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJ4In0.c2lnbmF0dXJlMTIzNDU2Nzg5MA"
	for row, want := range map[string]string{
		"saw " + jwt + " there":                    "saw [redacted] there",
		"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": Redacted,
	} {
		if got := Text(row); got != want {
			t.Errorf("%s became %s", row, got)
		}
	}
}

func TestWhatPeopleNeedStays(t *testing.T) {
	for _, row := range []string{
		"ccm.cloudprovider.v1alpha1.Instances/BatchGetInstances code=OK items=500",
		"aws:///eu-central-1a/i-0123456789abcdef0 is RUNNING",
		"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51",
		"the page token is too old (PAGE_TOKEN_EXPIRED): started again",
		"PAGE_TOKEN_EXPIRED: started again",
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
		"https://cloud.example/v1/servers?page=2",
		"größe: 5, token",
		// Names of methods, and what is told of a URL, as providers' errors have them.
		"hcops/LoadBalancerOps.GetByK8SServiceUID: not found",
		"k8s.io/cloud-provider-gcp/providers/gce.(*Cloud).GetLoadBalancerV4IPAddress2: timeout",
		`Post "https://oauth2.cloud.example/token": dial tcp: lookup oauth2.cloud.example: no such host`,
		"GET https://cloud.example/v3/auth/tokens: forbidden by policy",
		"",
	} {
		if got := Text(row); got != row {
			t.Errorf("%s became %s", row, got)
		}
	}
}

func TestWhatFollowsASecretStays(t *testing.T) {
	for row, want := range map[string]string{
		"token=abc region=eu":             "token=[redacted] region=eu",
		`{"token":"abc","region":"eu"}`:   `{"token":"[redacted]","region":"eu"}`,
		`{"tokens":5,"x":[1]}`:            `{"tokens":"[redacted]","x":[1]}`,
		`{"m":"a {\"token\":\"abc\"} b"}`: `{"m":"a {\"token\":\"[redacted]\"} b"}`,
	} {
		if got := Text(row); got != want {
			t.Errorf("%s became %s", row, got)
		}
	}
}

func FuzzTextKeepsItsPromises(f *testing.F) {
	for _, seed := range []string{"token=a", `"token":"`, "-----BEGIN ", "://@", `token=\\\"`, "token::x", "größe token=ä"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := Text(text)
		if !strings.Contains(once, Redacted) && once != text {
			t.Errorf("%q became %q without a redaction", text, once)
		}
	})
}
