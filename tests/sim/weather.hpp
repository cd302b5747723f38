#pragma once

#include "random.hpp"

#include <set>

namespace rowlock::sim {

/// What goes wrong between the clients and the database, and in it. A chance is that of one
/// statement, unless it says otherwise.
struct weather {
    i64 shortest_way = 30 * us, longest_way = 400 * us;  ///< of a request, and of an answer
    double slow = 0;                                     ///< a way takes up to slow_max
    double slow_answers = 0;                             ///< the way of an answer does
    i64 slow_max = 300 * ms;
    int slow_answers_of = -1;  ///< the node whose answers these are; -1: all
    double lost_request = 0;   ///< it never arrives; the connection is gone
    double lost_reply = 0;     ///< it runs, and its answer never arrives
    double late = 0;           ///< it runs up to late_max later: its caller may have given up
    i64 late_max = 4 * second;
    double cut = 0;              ///< the connection is found closed; nothing was sent
    double full = 0;             ///< a writing statement is refused: no room on the disk
    double refused = 0;          ///< of a connection: it is not made
    double lost_change = 0;      ///< of a commit: a client is not told that the file has changed
    bool down = false;           ///< nothing arrives, nothing is answered
    std::set<int> cut_off = {};  ///< nodes for which that is so

    [[nodiscard]] bool reaches(int node_id) const { return !down && !cut_off.contains(node_id); }
};

}  // namespace rowlock::sim
