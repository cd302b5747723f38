#pragma once

#include "quorum/quorum_protocol.hpp"

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>

namespace rowlock::detail {

/// @throws error errc::invalid_options unless a quorum may have so many members
void require_count(std::size_t members);
/// "member 2", for people.
[[nodiscard]] std::string member_at(std::size_t position);

/// The membership with the greatest epoch that this client has seen. Thread-safe.
class quorum_members {
public:
    /// What one member says of itself.
    struct standing {
        std::optional<protocol::quorum_membership> row{};
        std::string server{};  ///< its identity now; empty: it does not identify itself
    };

    explicit quorum_members(std::size_t count) : count_{count} {}

    /// Takes over what the member at that position says. Returns whether the epoch rose.
    /// @throws error errc::conflict, unsupported or invalid_options if that server may not vote
    bool learn(std::size_t position, const standing& seen);
    /// The membership that others have shown.
    void expect(const protocol::quorum_membership& known);
    /// Nullopt before any member was read.
    [[nodiscard]] std::optional<protocol::quorum_membership> current() const;
    /// Whether that server is the member at that position.
    [[nodiscard]] bool includes(std::size_t position, const std::string& server) const;

private:
    const std::size_t count_;
    mutable std::mutex mutex_;
    std::optional<protocol::quorum_membership> current_;
};

}  // namespace rowlock::detail
