#pragma once

#include "random.hpp"

namespace rowlock::sim {

/// What happens to datagrams.
struct mail_weather {
    double lost = 0;
    i64 shortest = 20 * us, longest = 200 * us;  ///< how long one is on its way
};
extern mail_weather mail;

/// Closes the mailboxes of a node; -1: all.
void close_mailboxes(int node_id);

/// Before a simulation: no descriptor, mailbox or weather of an earlier one is left.
void start_anew();

}  // namespace rowlock::sim
