"""Identities: which URIs and certificates name one, and what each may do."""

from typing import TYPE_CHECKING

import grpc
import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.transport.identity import (
    Identity,
    IdentityError,
    NotPermittedError,
    Role,
    require,
    require_fencing_owner,
)

if TYPE_CHECKING:
    from tests.shared.certificates import PKI
    from tests.shared.mirror import Ask, Serve

ADMIN = Identity(Role.ADMIN)
READONLY = Identity(Role.READONLY)
SHARD = Identity(Role.SHARD, "s1")
CLUSTER = Identity(Role.CLUSTER, "c1")

GOOD = {
    "bigfleet://cluster/prod-eu.1": Identity(Role.CLUSTER, "prod-eu.1"),
    "bigfleet://shard/S_1": Identity(Role.SHARD, "S_1"),
    "bigfleet://provider/aws": Identity(Role.PROVIDER, "aws"),
    "bigfleet://coordinator": Identity(Role.COORDINATOR),
    "bigfleet://admin": ADMIN,
    "bigfleet://readonly": READONLY,
    f"bigfleet://cluster/{'x' * 253}": Identity(Role.CLUSTER, "x" * 253),
}

BAD = [
    "",
    "bigfleet:",
    "bigfleet://",
    "bigfleet:///",
    "bigfleet://cluster",
    "bigfleet://cluster/",
    "bigfleet://cluster//a",
    "bigfleet://cluster/a/",
    "bigfleet://cluster/a/b",
    "bigfleet://cluster/%61",
    "bigfleet://cluster/a%2Fb",
    "bigfleet://cluster/a b",
    "bigfleet://cluster/a?b",
    "bigfleet://cluster/a#b",
    "bigfleet://cluster/a\n",
    "bigfleet://cluster/..",
    "bigfleet://cluster/.a",
    "bigfleet://cluster/a.",
    "bigfleet://cluster/ä",
    "bigfleet://cluster/\u0661",
    f"bigfleet://cluster/{'x' * 254}",
    "bigfleet://Cluster/a",
    "bigfleet://CLUSTER/a",
    "BIGFLEET://cluster/a",
    " bigfleet://cluster/a",
    "bigfleet://user@cluster/a",
    "bigfleet://cluster:1/a",
    "bigfleet://admin/",
    "bigfleet://admin/root",
    "bigfleet://coordinator/1",
    "bigfleet://readonly/",
    "bigfleet://operator/a",
    "bigfleet:cluster/a",
    "spiffe://cluster/a",
]


@pytest.mark.parametrize(("uri", "identity"), GOOD.items())
def test_each_shape_of_the_contract_is_an_identity_and_is_written_back_the_same(uri: str, identity: Identity) -> None:
    assert Identity.from_uri(uri) == identity
    assert str(identity) == uri


@pytest.mark.parametrize("uri", BAD)
def test_everything_else_is_refused_with_what_was_found(uri: str) -> None:
    with pytest.raises(IdentityError, match="found") as refused:
        Identity.from_uri(uri)
    assert len(str(refused.value)) < 400


@given(st.text())
def test_a_text_that_parses_is_the_only_spelling_of_its_identity(name: str) -> None:
    try:
        identity = Identity.from_uri(f"bigfleet://cluster/{name}")
    except IdentityError:
        return
    assert str(identity) == f"bigfleet://cluster/{name}"
    assert identity.id == name


@given(st.binary(max_size=300))
def test_bytes_that_are_no_certificate_name_no_identity(noise: bytes) -> None:
    with pytest.raises(IdentityError):
        Identity.from_pem(noise)


def test_a_certificate_may_carry_host_names_beside_its_identity(pki: "PKI") -> None:
    issued = pki.issue("bigfleet://shard/s1", dns=("shard.example",), ips=("10.0.0.1",))
    assert Identity.from_certificate(issued.certificate) == SHARD


@pytest.mark.parametrize(
    ("uris", "found"),
    [
        ((), "found 0: none"),
        (("bigfleet://admin", "bigfleet://shard/s1"), "found 2: 'bigfleet://admin', 'bigfleet://shard/s1'"),
        (("bigfleet://admin", "https://a.example"), "found 2: 'bigfleet://admin', 'https://a.example'"),
    ],
)
def test_a_certificate_with_no_or_several_uris_names_no_identity(pki: "PKI", uris: tuple[str, ...], found: str) -> None:
    with pytest.raises(IdentityError, match=found):
        Identity.from_certificate(pki.issue(*uris, dns=("a.example",)).certificate)


def test_a_certificate_without_alternative_names_names_no_identity(pki: "PKI") -> None:
    certificate = pki.issue(common_name="bigfleet://admin").certificate
    with pytest.raises(x509.ExtensionNotFound):
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    with pytest.raises(IdentityError, match="found 0"):
        Identity.from_certificate(certificate)


class TestRequire:
    def test_kind_and_id_must_both_match(self) -> None:
        require(CLUSTER, Role.CLUSTER, named="c1")
        for peer in (Identity(Role.CLUSTER, "c2"), Identity(Role.SHARD, "c1"), ADMIN, Identity(Role.CLUSTER, "C1")):
            with pytest.raises(NotPermittedError, match=f"needs a certificate of cluster 'c1'; the peer's says {peer}"):
                require(peer, Role.CLUSTER, named="c1")

    def test_an_empty_id_matches_nobody(self) -> None:
        with pytest.raises(NotPermittedError):
            require(ADMIN, Role.ADMIN, named="")

    def test_one_of_several_kinds_is_enough(self) -> None:
        for peer in (READONLY, ADMIN):
            require(peer, Role.READONLY, Role.ADMIN)
        with pytest.raises(NotPermittedError, match="readonly or admin; the peer's says bigfleet://cluster/c1"):
            require(CLUSTER, Role.READONLY, Role.ADMIN)

    def test_a_readonly_peer_is_no_admin(self) -> None:
        with pytest.raises(NotPermittedError):
            require(READONLY, Role.ADMIN)

    def test_plaintext_has_no_identity_to_refuse(self) -> None:
        require(None, Role.ADMIN)
        require_fencing_owner(None, "s1")

    def test_a_long_foreign_id_is_cut_in_the_sentence(self) -> None:
        with pytest.raises(NotPermittedError) as refused:
            require(CLUSTER, Role.CLUSTER, named="y" * 1_000_000)
        assert len(str(refused.value)) < 300


class TestAMutatingProviderCall:
    def test_is_taken_from_the_shard_whose_token_it_carries(self) -> None:
        require_fencing_owner(SHARD, "s1")

    @pytest.mark.parametrize("peer", [Identity(Role.SHARD, "s2"), ADMIN, READONLY, Identity(Role.CLUSTER, "s1")])
    def test_with_a_token_is_refused_from_everybody_else(self, peer: Identity) -> None:
        with pytest.raises(NotPermittedError):
            require_fencing_owner(peer, "s1")

    def test_without_a_token_is_taken_from_an_admin_only(self) -> None:
        require_fencing_owner(ADMIN, "")
        for peer in (SHARD, READONLY, Identity(Role.COORDINATOR)):
            with pytest.raises(NotPermittedError, match="of admin"):
                require_fencing_owner(peer, "")


class TestAServicer:
    async def call(self, pki: "PKI", ask: "Ask", port: int, method: str, *uris: str) -> bytes:
        leaf = pki.issue(*uris, dns=("client.example",))
        credentials = grpc.ssl_channel_credentials(pki.ca.chain, leaf.key, leaf.chain)
        options = (("grpc.ssl_target_name_override", "some program"),)
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
            return await ask(channel, method, b"")

    async def test_sees_the_identity_in_the_callers_certificate(self, pki: "PKI", serve: "Serve", ask: "Ask") -> None:
        async with serve(pki.live("bigfleet://shard/s1")) as port:
            answer = await self.call(pki, ask, port, "WhoAmI", "bigfleet://cluster/c1")
        assert answer.startswith(b"bigfleet://cluster/c1 ")

    async def test_sees_none_over_plaintext(self, serve: "Serve", ask: "Ask") -> None:
        async with serve(None) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert await ask(channel, "WhoAmI", b"") == b"None None"

    async def test_refuses_a_trusted_certificate_that_names_no_identity(
        self, pki: "PKI", serve: "Serve", ask: "Ask"
    ) -> None:
        async with serve(pki.live("bigfleet://shard/s1")) as port:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await self.call(pki, ask, port, "WhoAmI")
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert "exactly one URI SAN, found 0" in (refused.value.details() or "")

    async def test_answers_a_refusal_with_permission_denied_and_the_sentence(
        self, pki: "PKI", serve: "Serve", ask: "Ask"
    ) -> None:
        async with serve(pki.live("bigfleet://shard/s1")) as port:
            assert await self.call(pki, ask, port, "AdminOnly", "bigfleet://admin") == b"done"
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await self.call(pki, ask, port, "AdminOnly", "bigfleet://readonly")
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert refused.value.details() == (
            "this call needs a certificate of admin; the peer's says bigfleet://readonly"
        )
