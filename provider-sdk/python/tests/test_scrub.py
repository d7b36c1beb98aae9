"""Texts with canaries: what must go, and what must stay legible."""

import pytest

from cloudprovider_sdk import scrub

CANARY = "canary-hunter2"


@pytest.mark.parametrize(
    "row",
    [
        "password=canary-hunter2",
        "password: canary-hunter2, next",
        '{"token":"canary-hunter2 with blanks","x":1}',
        r'{"message":"config {\"apiKey\": \"canary-hunter2\"}"}',
        'Config { client_secret: Some("canary-hunter2"), region: "a" }',
        "{'api_token': 'canary-hunter2', 'region': 'a'}",
        '{"authorization": ["Bearer canary-hunter2"]}',
        "authorization: Bearer canary-hunter2",
        "got Bearer canary-hunter2 from the file",
        "https://user:canary-hunter2@cloud.example/v1",
        "--cloud-password=canary-hunter2 --x",
        'annotations: {"example.io/api-token": "canary-hunter2"}',
        "-----BEGIN EC PRIVATE KEY-----\ncanary-hunter2\n-----END EC PRIVATE KEY-----",
        r"key -----BEGIN PRIVATE KEY-----\ncanary-hunter2\n-----END PRIVATE KEY----- end",
        "-----BEGIN PRIVATE KEY-----\ncanary-hunter2 cut off",
        "AWS_SECRET_ACCESS_KEY='canary-hunter2'",
        r'password = "with \" quote canary-hunter2"',
    ],
)
def test_secrets_go_in_every_spelling(row: str) -> None:
    clean = scrub.text(row)
    assert CANARY not in clean
    assert scrub.REDACTED in clean


def test_long_random_strings_go_without_a_name() -> None:
    jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJ4In0.c2lnbmF0dXJlMTIzNDU2Nzg5MA"
    assert scrub.text(f"saw {jwt} there") == "saw [redacted] there"
    assert scrub.text("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY") == scrub.REDACTED


@pytest.mark.parametrize(
    "row",
    [
        "ccm.cloudprovider.v1alpha1.Instances/BatchGetInstances code=OK items=500",
        "aws:///eu-central-1a/i-0123456789abcdef0 is RUNNING",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "6f1c1f9e-3f0f-4c70-9d1e-9d3f0d2b7a51",
        "the page token is too old (PAGE_TOKEN_EXPIRED): started again",
        "PAGE_TOKEN_EXPIRED: started again",
        "CancellationToken::new() was dropped",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "https://cloud.example/v1/servers?page=2",
        "größe: 5, token",
        "",
    ],
)
def test_what_people_need_stays(row: str) -> None:
    assert scrub.text(row) == row


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ("token=abc region=eu", "token=[redacted] region=eu"),
        ('{"token":"abc","region":"eu"}', '{"token":"[redacted]","region":"eu"}'),
        ('{"tokens":5,"x":[1]}', '{"tokens":"[redacted]","x":[1]}'),
        (r'{"m":"a {\"token\":\"abc\"} b"}', r'{"m":"a {\"token\":\"[redacted]\"} b"}'),
    ],
)
def test_what_follows_a_secret_stays(row: str, wanted: str) -> None:
    assert scrub.text(row) == wanted
