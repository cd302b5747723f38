#pragma once

#include "support/mariadb_home.hpp"
#include "support/server_process.hpp"
#include <rowlock/sql/connection.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace support {

/// Three members of one group of MySQL Group Replication, on free ports of 127.0.0.1. A member that
/// falls silent is expelled after some five seconds. Takes half a minute to make.
class mysql_group {
public:
    enum class primaries : unsigned char { one, all };

    /// Null if there is no MySQL (scripts/with-servers --with mysql): the case then counts as
    /// skipped, or fails.
    [[nodiscard]] static std::unique_ptr<mysql_group> start(primaries which);

    static constexpr int size = 3;
    /// The URL of one member. All have the same users.
    [[nodiscard]] std::string url(int member) const;
    /// A URL with all members, this one first.
    [[nodiscard]] std::string url_from(int member) const;
    /// A connection to one member in any state.
    [[nodiscard]] std::unique_ptr<rowlock::sql::connection> admin(int member) const;
    /// Runs one statement as administrator, which may take a minute.
    rowlock::sql::result run(int member, const std::string& statement) const;

    /// Waits until all members have applied this one's transactions.
    void level(int from) const;

    void kill(int member);
    /// Stops the member: it answers neither its clients nor the group until thaw().
    void freeze(int member) const;
    void thaw(int member) const;
    /// Starts the member after kill(), outside the group.
    void start_alone(int member);
    /// Likewise without the plugin and its settings, as an ordinary server.
    void start_without_plugin(int member);
    /// Bootstraps the group with its first member.
    void found(int member);
    /// Joins the group, and waits until the member is ONLINE.
    void join(int member);
    /// Makes the last member, which has no majority, the whole group, as an operator does.
    void force(int member) const;
    /// The primary with primaries::one, once there is a live one.
    [[nodiscard]] int primary() const;
    void make_primary(int member) const;

private:
    struct node {
        std::unique_ptr<mariadb_home> home;
        std::unique_ptr<server_process> process;
        std::uint16_t port = 0;
        std::uint16_t group_port = 0;
    };

    mysql_group() = default;
    [[nodiscard]] bool launch(int member, bool with_plugin = true);
    [[nodiscard]] std::string url(int member, const std::string& database) const;
    [[nodiscard]] std::string failure() const;

    primaries primaries_ = primaries::one;
    std::string password_ = random_password();
    std::string name_;
    std::vector<node> nodes_;
};

}  // namespace support
