#pragma once

#include "lock/protocol/queue/queue_protocol.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rowlock::protocol {

/// The wait-for graph of one snapshot; finds the deadlock cycles that are ours to break.
///
/// A party is a pair of session and label (party_labels.hpp). A queue entry waits for the holders
/// that it does not fit beside, and for the entries before it in the queue. A hold is not released
/// before the entries that name its label have been served. Of each cycle the youngest entry that
/// keeps a hold gives way: every member finds the same one, so exactly one does.
class wait_graph {
public:
    /// @param rows of the statement `deadlocks`
    explicit wait_graph(const sql::result& rows);

    /// One cycle for each entry that is the youngest of a cycle: of `session`, or of any.
    ///
    /// A party that waits for what it holds itself, or has several entries at one name, is not a
    /// cycle here: a lease is bound to no thread, and another may release it. A mutex refuses that
    /// by itself.
    /// @param effort how many queue entries it looks at before it gives up: with many there may be
    /// more cycles than it returns
    [[nodiscard]] std::vector<deadlock_found> cycles(
        std::optional<session_id> session,
        std::size_t effort = std::numeric_limits<std::size_t>::max()) const;

private:
    using party = std::size_t;
    /// When an entry was made, by one order for all queues: the time, which two may share, and the
    /// ticket.
    using age = std::array<std::int64_t, 2>;
    struct vertex {
        std::string name;
        bool holds;
        ticket_no ticket;
        rowlock::grant_id grant_id;
        session_id session;
        std::optional<std::int64_t> weight;  ///< held, or waited for; nullopt: all of the lock
        age made;
        party self;                  ///< of a holder, its label; of an entry, its thread
        std::vector<party> blocked;  ///< of an entry: parties that it keeps waiting
        rowlock::grant_id base;      ///< of an upgrade
        bool blocks_a_hold = false;  ///< of an entry: it may give way
        std::string who;             ///< for messages
    };
    class search;

    template <typename PartyOf>
    static void read_blocked(const sql::result& rows, std::size_t row, vertex& made,
                             PartyOf party_of);
    void name_bases();
    [[nodiscard]] static bool fits(const vertex& holder, const vertex& entry);

    std::vector<vertex> vertices_;  ///< by lock; the holders, then the entries by ticket
    std::vector<std::vector<std::size_t>> entries_of_;  ///< each party's, as indices into vertices_
};

}  // namespace rowlock::protocol
