from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_saga.domain.secrets import (
    _BEHIND,
    _SHAPES,
    _first_look,
    looks_secret,
    mask_text,
    secret_key,
)

DIGITS = "0123456789abcdef" * 4
LETTERS = "aB3dE5gH7jK9mN1pQ2sT4vW6xY8z" * 3

SECRETS = [
    "sk_live_" + LETTERS[:24],
    "rk_test_" + LETTERS[:24],
    "whsec_" + LETTERS[:32],
    "sk-proj-" + LETTERS[:40],
    "sk-ant-api03-" + LETTERS[:40],
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "ASIA" + "ABCDEFGHIJKLMN12",
    "ghp_" + LETTERS[:36],
    "gho_" + LETTERS[:36],
    "github_pat_" + LETTERS[:40],
    "glpat-" + LETTERS[:20],
    "glsoat-" + LETTERS[:20],
    "glcbt-" + LETTERS[:20],
    "xoxb-" + DIGITS[:24],
    "xoxe.xoxp-1-" + LETTERS[:24],
    "xapp-1-" + LETTERS[:24],
    "https://hooks.slack.com/services/" + "T00000000/B00000000/" + LETTERS[:24],
    "AIza" + LETTERS[:35],
    "ya29." + LETTERS[:40],
    "GOCSPX-" + LETTERS[:28],
    "eyJhbGciOiJIUzI1NiJ9." + LETTERS[:30] + "." + LETTERS[:30],
    "SG." + LETTERS[:22] + "." + LETTERS[:43],
    "SK" + DIGITS[:32],
    "shpat_" + DIGITS[:32],
    "npm_" + LETTERS[:36],
    "pypi-" + LETTERS[:40],
    "hf_" + LETTERS[:34],
    "dop_v1_" + DIGITS[:64],
    "dapi" + DIGITS[:32],
    "hvs." + LETTERS[:24],
    "sq0atp-" + LETTERS[:22],
    "key-" + DIGITS[:32],
    "secret_" + LETTERS[:43],
    "ntn_" + LETTERS[:43],
    "lin_api_" + LETTERS[:40],
    "gsk_" + LETTERS[:52],
    "xai-" + LETTERS[:60],
    "pplx-" + LETTERS[:48],
    "r8_" + LETTERS[:37],
    "sbp_" + DIGITS[:40],
    "sntrys_" + LETTERS[:40],
    "glsa_" + LETTERS[:32],
    "glc_" + LETTERS[:32],
    "dp.pt." + LETTERS[:40],
    "pscale_tkn_" + LETTERS[:32],
    "PMAK-" + DIGITS[:24] + "-" + DIGITS[:34],
    "NRAK-" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ0",
    "AbCdEfGhIjKlMn.atlasv1." + LETTERS[:60],
    "AGE-SECRET-KEY-1" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "123456789:AA" + LETTERS[:33],
    "-----BEGIN RSA PRIVATE KEY-----\n" + LETTERS + "\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n" + LETTERS,
    "Authorization: Bearer " + LETTERS[:30],
    "BEARER " + LETTERS[:30],
    "Basic dXNlcjpwYXNzd29yZDEyMw==",
    "postgresql://user:hunter2@db/prod",
    "see redis://:hunter2@cache:6379/0 for details",
    "Server=db;User=sa;Password=hunter2;Encrypt=yes",
    "https://x.test/?api_key=hunter22&page=2",
    "AccountName=a;AccountKey=abcdefgh==",
    '{"user": "bob", "password": "hunter2"}',
    "{'api_key': 'hunter22'}",
    '{\\"password\\": \\"hunter2\\"}',
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["%s", " %s", "text before %s and after", "\t%s\n"])
def test_a_secret_is_found_wherever_it_stands(secret: str, around: str) -> None:
    assert looks_secret(around % secret)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_masked_text_holds_no_secret_any_more(secret: str) -> None:
    masked = mask_text(f"before {secret} after")
    assert "***" in masked
    assert LETTERS[:20] not in masked
    assert DIGITS[:20] not in masked
    assert "hunter2" not in masked
    assert not looks_secret(masked)


@pytest.mark.parametrize("secret", SECRETS)
def test_the_first_look_misses_no_example(secret: str) -> None:
    assert _first_look(secret)


@pytest.mark.parametrize("shape", _SHAPES)
@settings(max_examples=5)
@given(data=st.data())
def test_the_first_look_misses_no_shape(shape: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(shape).filter(re.compile(shape).search))
    assert _first_look(text)


@pytest.mark.parametrize("row", _BEHIND)
@settings(max_examples=200)
@given(data=st.data())
def test_the_two_letters_in_front_hide_no_piece(
    row: tuple[str, str, str, tuple[str, ...]], data: st.DataObject
) -> None:
    _, end, last, pieces = row
    piece = data.draw(st.from_regex(f"(?:{'|'.join(pieces)})", fullmatch=True)) or last
    assert _first_look(piece + data.draw(st.from_regex(end, fullmatch=True)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "cus_1234567890",
        "order 17 of the day",
        "https://example.test/path?page=2&size=10",
        "a basic understanding of bearers",
        "task-management-for-small-teams",
        "user@example.test wrote: hello",
        "2026-11-29T16:17:18.000001+00:00",
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        DIGITS,
        "3.14159",
        "ok:true",
        "Password reset was requested",
        "the password: please choose a new one",
    ],
)
def test_a_harmless_text_passes_unchanged(text: str) -> None:
    assert not looks_secret(text)
    assert mask_text(text) == text


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "Password",
        "PASSWORD",
        "passwd",
        "pwd",
        "new_password",
        "password2",
        "password_hash",
        "dbPassword",
        "secret",
        "client_secret",
        "clientSecret",
        "api_key",
        "apiKey",
        "apikey",
        "X-Api-Key",
        "stripe.api_key",
        "token",
        "access_token",
        "accessToken",
        "refresh_token",
        "Authorization",
        "set-cookie",
        "cookie",
        "private_key",
        "privateKey",
        "AWS_SECRET_ACCESS_KEY",
        "credential",
        "otp",
        "cvv",
        "pin",
        "card_pin",
        "jwt",
        "passphrase",
        "seed_phrase",
        "connection_string",
        "api_keys",
        "access_tokens",
    ],
)
def test_a_name_of_a_secret_is_known(name: str) -> None:
    assert secret_key(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "amount",
        "customer_id",
        "token_count",
        "max_tokens",
        "total_tokens",
        "tokens",
        "next_page_token",
        "page_token",
        "token_type",
        "secret_name",
        "secret_arn",
        "password_policy",
        "credential_ref",
        "idempotency_key",
        "primary_key",
        "key",
        "public_key",
        "passed",
        "compass",
        "author",
        "pinned",
        "boarding_pass",
        "authorization_id",
        "cookie_policy",
        "secretary",
    ],
)
def test_a_harmless_name_stays_harmless(name: str) -> None:
    assert not secret_key(name)
