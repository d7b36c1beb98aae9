use super::*;

const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFsqWU4wHkw8EpgHE22FO+8zVScAca1APXoeDxK/VjGe";
const ED25519_PRINT: &str = "SHA256:gj0Dv1xE8Sqfry+7yeVcf/fkjOoJLcOx3seJwdnaggU";
const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCVEV4ePUApQyK2h9wUfQSbOzc2VLLeRltBx4QFw5TqAvzuapRiOx32dvX5PgcJWfTW4XRCw/kl7y7br4HMYS0ymCfJF2q6ZnYmQ134f2IG87bFELSkjnZjvMB1hD+OAHulrhpcKg9M9aS1EfnBu72UOdXwscom4VN5QX4kHQjGKXuBnpsJEH29K/J3vUgoksu2IEgdSkpvO5vA+xhBjTeSDkA+eux/3qNehRCuFn9IgM5sFINe2sluhIQwVQS8iDEzUklXChzsYWTg5C0WgtR9jPogPj/IPMIgiyZabGrh/X9exUzn978u4O9Qvjqml2uudnT3uYPe+14pXz2ewlwL";
const RSA_1024: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDMhXBAsf19brtxBEkjA5Ij6zSz8+c/98sTNnOMVwtaqAZgcaRPHg0ZoCzpawJuXIecqDaePA2zKkwZb02EWBTcEO08+e+jwGVx/aSisgPe1p6nUKsoO53Ze+yVxPVGJQaz7Z7APw4gHVg1v/3+M90loOaktxJXTmjrRb19WVbjxQ==";
const ECDSA: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBCTXfUW91eBuJDQ0y+ZAvrHK+g5PfBPPuEcHo+kUkWMH/t3OiHGI0BWgFZ0WBhAkoiSU3jP++UzCZfIcV5359n8=";
const DSA: &str = "ssh-dss AAAAB3NzaC1kc3MAAACBAIOkiNE+sHcdKGRdlAKiaq3o82a3Vk5jA5hhRwKCWVynRgWpW+J24QNkfOGScM9NQiRdU///T8erQTCpRMd28HlINGI8lRtHwSDadxKTbtSWVnLmZrNS+vs9NNnz2I2rxKDShZsY5GHwElkEnOznt6KlztuX/mPhGCJjjWBCodWrAAAAFQDE/hy/cuX9D88lDs4FxqB30mqbxwAAAIBrTT5ICwyRBfILP5kMMCdL9oPPXWrCmWanMlLx3e7E4JgEar+/EQKw0zTsLHA8NBjgLXGL9ppmWCW5HuQ5mA0gGfA9xYoGUQGXEoYeAkrhR96JZOtSSkOlHQwbs8D9lHsk8NWFFG0yhdDw9UCwtqBb+ZkU7mneesDzJULb77Wm8gAAAIAI+qbrhRz3GuO3emCcEc58E5rEI4cRQNEIutTwrP+Gt8CHN6xLdLfWhbDjQGWpAIIBTB0xvBR3VF+91uobKpJ6BzLRR53RffFcu8Unt1IqSK1Odih19dU4lhbyZBuXThSpEqhbkk7OsggIQVj74ZvQmuH/GjHkB8u8jnmLIondgg==";

fn of(user: &str, value: &[u8]) -> Plan {
    plan(&BTreeMap::from([(user.to_owned(), value.to_vec())]))
}

#[test]
fn public_keys_are_spread_in_their_shortest_form() {
    let text = format!("# team\n\n{ED25519} alice@laptop\r\n  {RSA}\n{ECDSA} x y\n{ED25519} again\n");
    let plan = of("core", text.as_bytes());
    assert!(plan.refused.is_empty(), "{:?}", plan.refused);
    let lines: Vec<_> = plan.keys.iter().map(|key| key.line.as_str()).collect();
    assert_eq!(lines, [ED25519, RSA, ECDSA]);
    assert_eq!(plan.keys[0].fingerprint, ED25519_PRINT);
    assert_eq!(format!("{:?}", plan.keys[0]), format!("core {ED25519_PRINT}"), "no key in a log");
}

#[test]
fn whatever_is_no_public_key_stays_here() {
    let other_kind = ED25519.replace("ssh-ed25519", "ssh-rsa");
    let cut = &ED25519[..ED25519.len() - 4];
    let long = format!("{ED25519} {}", "x".repeat(LONGEST_KEY));
    let rows = [
        ("options before it", format!("command=\"id\" {ED25519}"), "not a public key"),
        ("a word", "secret".to_owned(), "not a public key"),
        ("another kind than it says", other_kind, "not a public key"),
        ("cut off", cut.to_owned(), "not a public key"),
        ("no base64", "ssh-ed25519 !!!".to_owned(), "not a public key"),
        ("weak", RSA_1024.to_owned(), "2048 bits"),
        ("outdated", DSA.to_owned(), "DSA"),
        ("too long", long, "16 KiB"),
    ];
    for (what, text, why) in rows {
        let plan = of("core", format!("{RSA}\n{text}").as_bytes());
        assert_eq!(plan.keys.len(), 1, "{what}: the others are spread");
        let [refusal] = &plan.refused[..] else { panic!("{what}: {:?}", plan.refused) };
        assert!(refusal.starts_with("line 2 ") && refusal.contains(why), "{what}: {refusal}");
        assert!(!refusal.contains(&text), "{what}: a refusal does not repeat the line");
    }
}

#[test]
fn a_value_or_a_user_that_cannot_be_is_refused_whole() {
    let private = format!("{ED25519}\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n");
    let rows: [(&str, &str, &[u8], &str); 5] = [
        ("a private key", "core", private.as_bytes(), "private key"),
        ("no text", "core", &[0xff, 0xfe], "not text"),
        ("an option", "-oProxyCommand", ED25519.as_bytes(), "login name"),
        ("upper case first", "Root", ED25519.as_bytes(), "login name"),
        ("too long", "a23456789012345678901234567890123", ED25519.as_bytes(), "32 bytes"),
    ];
    for (what, user, value, why) in rows {
        let plan = of(user, value);
        assert!(plan.keys.is_empty(), "{what}");
        let [refusal] = &plan.refused[..] else { panic!("{what}: {:?}", plan.refused) };
        assert!(refusal.starts_with("the keys ") && refusal.contains(why), "{what}: {refusal}");
    }
}
