#pragma once

#include "stress/history.hpp"
#include <rowlock/history.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// What the leaders of an election believed and its observers saw, as their processes wrote it at
/// once, and the rules for it. What happened is in the database's records (rowlock/history.hpp).
/// Times are microseconds: of CLOCK_BOOTTIME for what is believed, otherwise by the clock of the
/// database, which is on this host.
namespace stress {

/// A term in which its leader believed.
struct believed_term {
    std::int64_t term = 0;
    std::string value;
    std::string proclaimed;  ///< the leader asked for this change of the value; empty: for none
    micros begun = 0;        ///< CLOCK_BOOTTIME
    micros until = 0;        ///< CLOCK_BOOTTIME; a killed leader's: to the end of its trust window
    micros known = 0;        ///< the leader knew of its grant
    micros changed = 0;      ///< the leader knew of the changed value; 0: never
};

/// One call of an observer.
struct look {
    int observer = 0;
    micros called = 0;
    micros returned = 0;
    bool news = false;      ///< false: the call returned that nothing had changed
    std::int64_t term = 0;  ///< of the news, as the others
    bool led = false;
    std::string value;
};

struct election_history {
    std::vector<believed_term> terms;
    std::vector<look> looks;    ///< each observer's in their order
    std::vector<micros> kills;  ///< of leaders, by CLOCK_BOOTTIME

    /// Adds the log of a candidate or an observer.
    void read(const std::string& path, int process);
};

/// A state that an office had, as observers may see it.
struct office_state {
    std::int64_t term = 0;
    bool led = false;
    std::string value;
    micros from = 0;     ///< no look saw it that had returned before
    micros certain = 0;  ///< each look that was called later sees it, or a later one; or never
};

/// All of them, in their order. The first: no leader yet. A leader that died is followed by none
/// from the moment at which its session expired; one that handed its office over, by the next.
/// @param truth of the election's name, and of sessions, from the start
[[nodiscard]] std::vector<office_state> states_of(const std::string& office,
                                                  const std::vector<rowlock::history_record>& truth,
                                                  const election_history& all);

/// A later leader has a greater term.
[[nodiscard]] violations falling_terms(const election_history& all);
/// No two leaders believe at the same moment.
[[nodiscard]] violations overlapping_terms(const election_history& all);
/// A leader has the term that the database has given to it.
[[nodiscard]] violations unrecorded_terms(const election_history& all,
                                          const std::vector<office_state>& states);
/// An observer sees a subsequence of the states, and none of them early, too late or twice.
/// @param slack how exactly the database's clock and ours are read
[[nodiscard]] violations wrong_looks(const election_history& all,
                                     const std::vector<office_state>& states, micros slack);
/// The last that an observer saw is the last state.
[[nodiscard]] violations unseen_ends(const election_history& all,
                                     const std::vector<office_state>& states, int observers);
/// After each kill of a leader another one believes within a time.
[[nodiscard]] violations late_leaders(const election_history& all, micros within);

/// The times without a leader: from each kill to the next leader's first belief.
[[nodiscard]] std::vector<micros> vacancies(const election_history& all);

/// What an observer saw of the terms and vacancies, and what not.
struct sights {
    std::size_t terms = 0;  ///< in which a leader believed
    std::size_t missed_terms = 0;
    std::size_t passing = 0;  ///< terms that were handed on, or ended, before one believed
    std::size_t missed_passing = 0;
    std::size_t vacancies = 0;
    std::size_t missed_vacancies = 0;
};
[[nodiscard]] sights seen_by(int observer, const election_history& all,
                             const std::vector<office_state>& states);

}  // namespace stress
