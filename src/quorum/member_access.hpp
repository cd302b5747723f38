#pragma once

#include "quorum/quorum_members.hpp"
#include "quorum/quorum_protocol.hpp"
#include <rowlock/client.hpp>
#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rowlock::detail {

class engine;

/// A client of one member, and the statements of quorums on its connections. Each is repeated after
/// failures, within a statement's time. Thread-safe.
class member_access {
public:
    /// @throws error errc::unsupported for SQLite
    explicit member_access(sql::connection_source source, client_options options = {});

    [[nodiscard]] client& locks() noexcept { return client_; }
    [[nodiscard]] engine& core() const noexcept;
    /// Two round trips.
    [[nodiscard]] quorum_members::standing look();
    /// The server on which the session of that lease was opened; empty if the session is over.
    [[nodiscard]] std::string server_of(const lease& held) const;
    // As protocol::quorum_protocol.
    [[nodiscard]] std::optional<std::int64_t> raise(
        const protocol::quorum_protocol::grant_key& grant, const protocol::known_quorum& under,
        std::optional<std::int64_t> token);
    void seal(std::string_view name, std::int64_t token, std::string_view quorum);
    void found(const protocol::quorum_membership& as);
    /// Returns whether the member knows that membership now.
    [[nodiscard]] bool raise_epoch(const protocol::quorum_membership& to);
    [[nodiscard]] std::int64_t greatest_token();
    /// Asks for the release of every lease that may be part of a quorum lock, at once.
    void ask_for_quorum_leases();

private:
    template <typename Call>
    auto call(Call what);

    client client_;
    std::optional<protocol::quorum_protocol> protocol_;
};

}  // namespace rowlock::detail
