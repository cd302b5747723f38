#pragma once

#include "coordination/protocol/queue/queue_protocol.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace rowlock::protocol {

/// The wait-for graph of one snapshot; finds the deadlock cycles that are ours to break.
///
/// A party is a pair of session and thread label. A queue entry waits for the party that holds the
/// lease, and for the parties before it in the queue. Of each cycle the entry with the youngest
/// ticket gives way: every member finds the same one, so exactly one does.
class wait_graph {
public:
    /// @param rows of the statement `deadlocks`
    explicit wait_graph(const sql::result& rows);

    /// One cycle for each entry of `session` that is the youngest of a cycle.
    ///
    /// A party that waits for what it holds itself, or has several entries at one name, is not a
    /// cycle here: a lease is bound to no thread, and another may release it. A mutex refuses that
    /// by itself.
    [[nodiscard]] std::vector<deadlock_found> cycles(session_id session) const;

private:
    struct vertex {
        std::string name;
        ticket_no ticket;  ///< 0: holds the lease
        rowlock::grant_id grant_id;
        session_id session;
        std::size_t party;
        std::string who;  ///< for messages
    };
    class search;

    std::vector<vertex> vertices_;  ///< by name, then by ticket
    std::vector<std::vector<std::size_t>>
        entries_of_;  ///< each party's entries, as indices into vertices_
};

}  // namespace rowlock::protocol
