#pragma once

#include "support/servers.hpp"
#include <rowlock/sql/connection.hpp>

#include <memory>
#include <string>

namespace support {

/// A primary and its standby on this machine, for a test that kills the one and promotes the other.
/// Takes a few seconds to start.
class replicated_pair {
public:
    enum class commits : unsigned char { asynchronous, synchronous };

    /// Synchronous: a commit is answered when the standby has it too (PostgreSQL: has applied it;
    /// MariaDB, MySQL: has it on disk, semi-synchronous). Null if the server's programs are
    /// missing: the case then counts as skipped, or fails.
    [[nodiscard]] static std::unique_ptr<replicated_pair> start(server which, commits how);
    virtual ~replicated_pair() = default;
    replicated_pair(const replicated_pair&) = delete;
    replicated_pair& operator=(const replicated_pair&) = delete;

    [[nodiscard]] virtual const std::string& primary_url() const = 0;
    [[nodiscard]] virtual const std::string& standby_url() const = 0;
    /// A URL with both hosts, the primary first.
    [[nodiscard]] virtual std::string url() const = 0;

    /// Waits until the standby has all changes of the primary.
    void catch_up() const;
    /// Stops the standby from receiving changes, so that it lags.
    virtual void hold_back() = 0;
    /// Kills the primary by SIGKILL.
    virtual void kill_primary() = 0;
    /// Promotes the standby to a primary, and waits until it is one.
    virtual void promote() = 0;

protected:
    replicated_pair() = default;
};

}  // namespace support
