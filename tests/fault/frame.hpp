#pragma once

#include "support/lock_database.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

/// The fault suite: each row makes one fault for real, again and again, and counts what broke. A
/// row registers itself from its own .cpp:
///
///     const fault::on_databases f3{{.id = "F3",
///                                   .what = "kill -9 of the holder",
///                                   .databases = fault::all_databases,
///                                   .quick_rounds = 4,
///                                   .full_rounds = 100,
///                                   .bound = ttl + poll,
///                                   .run = kill_the_holder,
///                                   .control = kill_a_holder_of_a_longer_ttl}};
///
/// makes the rows F3/postgresql, F3/mariadb, F3/sqlite. One without tables of the shared servers is
/// a fault::row. Each row runs in its own process, a few of them at a time.
namespace fault {

using std::chrono::milliseconds;
using duration = std::chrono::steady_clock::duration;

/// The number of rounds. quick, for the ordinary tests, makes a few.
enum class scale : unsigned char { quick, full };

/// Which other rows may run beside one.
enum class beside : unsigned char {
    some,
    few,   ///< it measures milliseconds, and mostly waits
    none,  ///< it takes the whole machine
};

/// A round could not be prepared, which a machine that stalls may cause: trial::must_alone().
class not_prepared : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// A measured time, and its promised bound.
struct measure {
    std::string what;
    double took_ms = 0;
    double bound_ms = 0;
};

/// The results of one run of a row. Thread-safe.
class trial {
public:
    trial(scale size, int rounds, milliseconds bound, unsigned seed)
        : size_{size}, wanted_{rounds}, bound_{bound}, seed_{seed} {}

    /// The number of rounds to make.
    [[nodiscard]] int rounds() const noexcept { return wanted_; }
    [[nodiscard]] scale size() const noexcept { return size_; }
    [[nodiscard]] unsigned seed() const noexcept { return seed_; }
    /// The row's bound.
    [[nodiscard]] milliseconds bound() const noexcept { return bound_; }

    /// Counts completed rounds.
    void made(int rounds = 1);
    /// Reports a broken promise.
    void violation(const std::string& what);
    /// Reports a broken promise unless `holds`.
    bool must(bool holds, const std::string& what);
    void violations(const std::vector<std::string>& all);
    /// Like must(), for results that a busy machine may spoil: a race that hardly happened, a late
    /// grant. The row is repeated alone, up to three times, and the last result counts.
    bool must_alone(bool holds, const std::string& what);
    void must_be_none_alone(const std::vector<std::string>& all);
    /// Reports that the unprotected side failed, as it must: the fault was real and is detected.
    void unprotected(const std::string& what, int times = 1);
    /// Reports a time that must be within the row's bound, or another.
    void took(duration time, const std::string& what = {});
    void took(duration time, const std::string& what, duration bound);
    /// Reports the p95 of all, if there are at least twenty, and the longest of them.
    void took_mostly(std::vector<duration> all, const std::string& what, duration p95);
    /// A note that is shown with --verbose or when the row fails.
    void note(const std::string& text);
    /// Reports that a prerequisite of the row is missing.
    void skip(const std::string& why);

private:
    friend class report_of;

    const scale size_;
    const int wanted_;
    const milliseconds bound_;
    const unsigned seed_;
    mutable std::mutex mutex_;
    int rounds_ = 0;
    int violations_ = 0;
    int control_violations_ = 0;
    int spoilt_ = 0;
    std::optional<measure> worst_;  ///< the nearest to its bound, or the farthest beyond
    std::vector<std::string> words_;
    std::string skipped_;
};

struct row {
    std::string id = {};    ///< the fault's id and the database: "F9/postgresql"
    std::string what = {};  ///< in a few words
    int quick_rounds = 1;
    int full_rounds = 1;
    milliseconds bound{0};  ///< 0: nothing is timed
    std::function<void(trial&)> run;
    /// The same without protection. Its violations, and its times beyond the bound, count as the
    /// control's findings, of which there must be some.
    std::function<void(trial&)> control = {};
    /// Whether run itself has an unprotected side, which it reports by trial::unprotected().
    bool control_inside = false;
    beside neighbours = beside::some;
};

/// All registered rows, by fault and database.
[[nodiscard]] std::vector<row>& rows();

struct registered {
    explicit registered(row one) { rows().push_back(std::move(one)); }
};

using database_action = std::function<void(trial&, support::lock_database&)>;

/// A row for each database, each on its own migrated tables.
struct family {
    std::string id;
    std::string what;
    std::vector<support::backend> databases;
    int quick_rounds = 1;
    int full_rounds = 1;
    milliseconds bound{0};
    database_action run;
    database_action control = {};
    bool control_inside = false;
    beside neighbours = beside::some;
};

struct on_databases {
    explicit on_databases(const family& all);
};

inline const std::vector<support::backend> all_databases{
    support::backend::postgresql, support::backend::mariadb, support::backend::sqlite};
inline const std::vector<support::backend> all_servers{support::backend::postgresql,
                                                       support::backend::mariadb};

/// postgresql, mariadb, sqlite.
[[nodiscard]] std::string id_of(support::backend which);

/// The name of the i-th lock of a row with several.
[[nodiscard]] std::string name_of(int i);

/// The result of a row.
struct outcome {
    std::string id;
    int rounds = 0;
    int violations = 0;
    int spoilt = 0;                         ///< trial::must_alone()
    std::optional<int> control_violations;  ///< nullopt without a control
    std::optional<measure> worst;
    bool passed = false;
    std::string skipped;  ///< the reason; empty if the row ran
    std::vector<std::string> words;
    double seconds = 0;
};

/// Runs a row and its control here. Exceptions but not_prepared, and failed assertions of doctest,
/// are violations.
[[nodiscard]] outcome run_here(const row& which, scale size, std::optional<int> rounds,
                               unsigned seed);

/// The result as a line, to pass it from a row's process to the parent.
[[nodiscard]] std::string to_line(const outcome& all);
[[nodiscard]] outcome from_line(const std::string& line);

}  // namespace fault
