// Runs seeds, reports the first that fails, and shrinks it.

#include "database.hpp"
#include "plan.hpp"
#include "shrink.hpp"
#include "simulation.hpp"
#include "statement_bugs.hpp"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::sim {
namespace {

constexpr const char* help = R"(simulate [OPTION…]: the client under a simulated scheduler

Which seeds:
  --seed N            this one
  --from N            from this one on (1)
  --new               from a number on that each minute has another of, or ROWLOCK_SIM_SEED
  --count N           so many
  --seconds N         as many as fit into so many seconds of processor time
  --corpus FILE       those of a file, one command line each
What is simulated:
  --climate NAME      mixed (all faults), calm (none), slow-answers
  --bug NAME          with a seeded bug in a statement; --bugs lists them
  --without ITEMS     leaves out parts of the plan, such as 3-17,40
  --schedule N        another order of threads and other delays, under the same plan
What is shown:
  --trace             each step
  --twice             runs each seed twice, and compares the traces
  --keep-going        does not stop at the first seed that fails
  --no-shrink         reports a seed that fails as it is
  --statements        how often each statement ran
)";

struct request_line {
    u64 seed = 1;
    item_set without{};
    u64 schedule = 0;
    climate kind = climate::mixed;
};

struct arguments {
    request_line first{};
    u64 count = 100;
    double seconds = 0;
    std::vector<request_line> corpus{};
    std::string bug{};
    bool trace = false, twice = false, keep_going = false, shrinks = true, statements = false;
    std::string program{};
};

std::string_view to_string(climate kind) {
    if (kind == climate::mixed) return "mixed";
    return kind == climate::calm ? "calm" : "slow-answers";
}

climate parse_climate(std::string_view text) {
    for (const auto kind : {climate::mixed, climate::calm, climate::slow_answers}) {
        if (text == to_string(kind)) return kind;
    }
    throw std::invalid_argument{"no climate " + std::string{text}};
}

u64 parse_number(std::string_view text) {
    u64 value = 0;
    const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc{} || rest != text.data() + text.size()) {
        throw std::invalid_argument{"not a number: " + std::string{text}};
    }
    return value;
}

double processor_seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

/// The command that repeats it.
std::string command(const arguments& given, const request_line& what) {
    std::string text = given.program + " --seed " + std::to_string(what.seed);
    if (what.kind != climate::mixed) text += " --climate " + std::string{to_string(what.kind)};
    if (!given.bug.empty()) text += " --bug " + given.bug;
    if (!what.without.empty()) text += " --without " + to_text(what.without);
    if (what.schedule != 0) text += " --schedule " + std::to_string(what.schedule);
    return text + " --trace";
}

outcome run(const request_line& what, std::FILE* prints, statistics& sum) {
    const plan chosen = draw_plan(what.seed, what.kind, what.without);
    return simulate(chosen, what.seed, what.schedule, prints, sum);
}

// --- a seed that fails ---------------------------------------------------------------------------

/// The same kind of violation, with less. Each attempt may need another schedule to fail.
request_line shrunk(const request_line& failed, violation kind) {
    constexpr double longest = 20;
    constexpr u64 schedules = 3;
    const double began = processor_seconds();
    request_line best = failed;
    statistics unused;
    const auto fails = [&](const item_set& without) {
        for (u64 i = 0; i < schedules; ++i) {
            request_line attempt = best;
            attempt.without = without;
            attempt.schedule = best.schedule + i;
            if (run(attempt, nullptr, unused).kind != kind) continue;
            best = attempt;
            return true;
        }
        return false;
    };
    const item items = draw_plan(failed.seed, failed.kind).items;
    static_cast<void>(shrink(items, fails, [&] { return processor_seconds() - began < longest; }));
    return best;
}

void show_end_of(const std::string& file) {
    constexpr std::size_t most = 40;
    std::ifstream from{file};
    std::vector<std::string> lines;
    for (std::string line; std::getline(from, line);) lines.push_back(line);
    const std::size_t first = lines.size() > most ? lines.size() - most : 0;
    for (std::size_t i = first; i < lines.size(); ++i) std::printf("    %s\n", lines[i].c_str());
}

void report(const arguments& given, const request_line& what, const outcome& found) {
    std::printf("seed %llu fails (%s): %s\n  repeat it: %s\n",
                static_cast<unsigned long long>(what.seed),
                std::string{to_string(found.kind)}.c_str(), found.text.c_str(),
                command(given, what).c_str());
    if (!given.shrinks || given.trace) return;
    const auto smaller = shrunk(what, found.kind);
    const item items = draw_plan(what.seed, what.kind).items;
    std::printf("  shrunk, %zu of %zu parts: %s\n", items - smaller.without.size(), items,
                command(given, smaller).c_str());
    const std::string file = "simulated-" + std::to_string(what.seed) + ".trace";
    if (auto* const out = std::fopen(file.c_str(), "w")) {
        statistics unused;
        const auto again = run(smaller, out, unused);
        std::fclose(out);
        std::printf("  its trace is in %s, and ends with\n", file.c_str());
        show_end_of(file);
        std::printf("  (%s) %s\n", std::string{to_string(again.kind)}.c_str(), again.text.c_str());
    }
}

// --- many seeds ----------------------------------------------------------------------------------

/// What a child process tells its parent, in memory that they share.
struct progress {
    u64 seed = 0;  ///< that runs now
    u64 seeds = 0, operations = 0, grants = 0, statements = 0, steps = 0, traces = 0;
    u64 pauses = 0, kills = 0, cut_offs = 0, losses = 0, fences = 0, failures = 0;
    i64 virtual_time = 0, longest_wait = 0;
    double seconds = 0;

    void add(const statistics& sum) {
        seeds += sum.seeds;
        operations += sum.operations;
        grants += sum.grants;
        statements += sum.statements;
        steps += sum.steps;
        pauses += sum.pauses;
        kills += sum.kills;
        cut_offs += sum.cut_offs;
        losses += sum.losses;
        fences += sum.fences;
        virtual_time += sum.virtual_time;
        longest_wait = std::max(longest_wait, sum.longest_wait);
    }
};

/// False if it fails.
bool run_one(const arguments& given, const request_line& what, progress& total) {
    statistics sum;
    total.seed = what.seed;
    const auto found = run(what, given.trace ? stdout : nullptr, sum);
    total.add(sum);
    total.traces = total.traces * 31 + found.trace;
    if (given.trace) {
        for (const auto& [error, count] : sum.errors) {
            std::printf("  %4llu %s\n", static_cast<unsigned long long>(count), error.c_str());
        }
        std::printf("trace %016llx\n", static_cast<unsigned long long>(found.trace));
    }
    bool good = true;
    if (found.kind != violation::none) {
        report(given, what, found);
        good = false;
    }
    if (given.twice) {
        statistics unused;
        const auto again = run(what, nullptr, unused);
        if (again.trace != found.trace) {
            std::printf("seed %llu: two runs differ, traces %016llx and %016llx\n",
                        static_cast<unsigned long long>(what.seed),
                        static_cast<unsigned long long>(found.trace),
                        static_cast<unsigned long long>(again.trace));
            good = false;
        }
    }
    if (!good) ++total.failures;
    return good;
}

/// Runs seeds in child processes: what the killed processes of a simulation leave behind is never
/// freed; and the seed that ends a child by a signal can be named.
/// @param next the next seed; nullopt: no more
void run_all(const arguments& given, const std::function<std::optional<request_line>(u64)>& next,
             progress& total) {
    constexpr u64 seeds_of_a_child = 200;
    u64 number = 0;
    bool more = true;
    while (more && (total.failures == 0 || given.keep_going)) {
        std::vector<request_line> batch;
        while (batch.size() < seeds_of_a_child && more) {
            if (auto one = next(number)) {
                batch.push_back(std::move(*one));
                ++number;
            } else {
                more = false;
            }
        }
        if (batch.empty()) return;
        std::fflush(stdout);
        const pid_t child = ::fork();
        if (child == 0) {
            const double began = processor_seconds();
            const double before = total.seconds;
            for (const auto& one : batch) {
                const bool good = run_one(given, one, total);
                total.seconds = before + processor_seconds() - began;
                if (!good && !given.keep_going) break;
                if (given.seconds > 0 && total.seconds > given.seconds) break;
            }
            std::fflush(stdout);
            if (given.statements) {
                for (const auto& [name, count] : statement_counts()) {
                    std::printf("  %8llu ran, %8llu changed something: %s\n",
                                static_cast<unsigned long long>(count.runs),
                                static_cast<unsigned long long>(count.changes), name.c_str());
                }
                std::fflush(stdout);
            }
            ::_exit(given.bug.empty() || statement_was_edited() ? 0 : 3);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        ++total.failures;
        if (WIFEXITED(status)) {
            std::printf("the bug %s changes no statement\n", given.bug.c_str());
            return;
        }
        request_line what = given.first;
        what.seed = total.seed;
        std::printf("seed %llu ends by signal %d\n  repeat it: %s\n",
                    static_cast<unsigned long long>(total.seed), WTERMSIG(status),
                    command(given, what).c_str());
    }
}

void show(const progress& total) {
    const auto number = [](u64 value) { return static_cast<unsigned long long>(value); };
    std::printf(
        "%llu seeds in %.1f s of processor time (%.1f/s): %llu operations, %llu grants, %llu "
        "statements, %llu steps\n"
        "  %llu pauses, %llu kills, %llu times cut off; %llu holds were lost, %llu fenced commits\n"
        "  %.0f s of virtual time; the last call ended %lld ms after the faults; traces %016llx\n",
        number(total.seeds), total.seconds,
        static_cast<double>(total.seeds) / std::max(total.seconds, 0.001), number(total.operations),
        number(total.grants), number(total.statements), number(total.steps), number(total.pauses),
        number(total.kills), number(total.cut_offs), number(total.losses), number(total.fences),
        static_cast<double>(total.virtual_time) / 1e9,
        static_cast<long long>(total.longest_wait / ms), number(total.traces));
}

// --- the command line ----------------------------------------------------------------------------

/// Seeds that no earlier minute had, or those that the environment wants.
u64 new_seed() {
    if (const char* const wanted = std::getenv("ROWLOCK_SIM_SEED")) return parse_number(wanted);
    constexpr u64 seeds_of_a_minute = 10'000;
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<u64>(now.tv_sec) / 60 * seeds_of_a_minute;
}

void require_bug(std::string_view name) {
    for (const auto& bug : statement_bugs()) {
        if (bug.name != name) continue;
        edit_statement(std::string{bug.statement}, std::string{bug.part}, std::string{bug.instead});
        return;
    }
    throw std::invalid_argument{"no bug " + std::string{name}};
}

void read_options(arguments& to, std::span<const std::string_view> words);

std::vector<request_line> read_corpus(const std::string& file) {
    std::ifstream from{file};
    if (!from) throw std::invalid_argument{"cannot read " + file};
    std::vector<request_line> lines;
    for (std::string line; std::getline(from, line);) {
        line.resize(std::min(line.size(), line.find('#')));
        std::vector<std::string_view> words;
        std::string_view rest = line;
        while (!rest.empty()) {
            const auto end = std::min(rest.find(' '), rest.size());
            if (end > 0) words.push_back(rest.substr(0, end));
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
        if (words.empty()) continue;
        arguments one;
        read_options(one, words);
        lines.push_back(one.first);
    }
    return lines;
}

void read_options(arguments& to, std::span<const std::string_view> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        const auto word = words[i];
        const auto value = [&] {
            if (++i == words.size()) throw std::invalid_argument{std::string{word} + " what?"};
            return words[i];
        };
        if (word == "--seed") {
            to.first.seed = parse_number(value());
            to.count = 1;
        } else if (word == "--from") {
            to.first.seed = parse_number(value());
        } else if (word == "--new") {
            to.first.seed = new_seed();
        } else if (word == "--count") {
            to.count = parse_number(value());
        } else if (word == "--seconds") {
            to.seconds = static_cast<double>(parse_number(value()));
        } else if (word == "--corpus") {
            to.corpus = read_corpus(std::string{value()});
        } else if (word == "--climate") {
            to.first.kind = parse_climate(value());
        } else if (word == "--bug") {
            to.bug = value();
            require_bug(to.bug);
        } else if (word == "--without") {
            to.first.without = parse_items(value());
        } else if (word == "--schedule") {
            to.first.schedule = parse_number(value());
        } else if (word == "--trace") {
            to.trace = true;
        } else if (word == "--twice") {
            to.twice = true;
        } else if (word == "--keep-going") {
            to.keep_going = true;
        } else if (word == "--no-shrink") {
            to.shrinks = false;
        } else if (word == "--statements") {
            to.statements = true;
        } else {
            throw std::invalid_argument{"unknown option " + std::string{word}};
        }
    }
}

std::optional<request_line> next_seed(const arguments& given, u64 number, double seconds) {
    if (!given.corpus.empty()) {
        if (number >= given.corpus.size()) return std::nullopt;
        return given.corpus[number];
    }
    const bool enough = given.seconds > 0 ? seconds > given.seconds : number >= given.count;
    if (enough) return std::nullopt;
    request_line what = given.first;
    what.seed += number;
    return what;
}

int main(int argc, char** argv) {
    std::vector<std::string_view> words{argv + 1, argv + argc};
    if (std::find(words.begin(), words.end(), "--help") != words.end()) {
        std::fputs(help, stdout);
        return 0;
    }
    if (std::find(words.begin(), words.end(), "--bugs") != words.end()) {
        for (const auto& bug : statement_bugs()) {
            std::printf("%s\n", std::string{bug.name}.c_str());
        }
        return 0;
    }
    arguments given;
    given.program = argv[0];
    read_options(given, words);
    // libstdc++ leaves out half of some hand-shakes (stop_callback's) as long as there is one
    // thread.
    __libc_single_threaded = 0;
    // Memory that is returned to the system is asked for again by the next seed.
    ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
    ::mallopt(M_MMAP_THRESHOLD, 1 << 28);
    prepare_databases();
    void* const shared = ::mmap(nullptr, sizeof(progress), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    auto& total = *new (shared) progress;
    if (given.count > 1 && given.corpus.empty()) {
        std::printf("seeds from %llu on\n", static_cast<unsigned long long>(given.first.seed));
    }
    if (given.trace) {
        const double began = processor_seconds();
        run_one(given, given.first, total);
        total.seconds = processor_seconds() - began;
    } else {
        run_all(
            given, [&](u64 number) { return next_seed(given, number, total.seconds); }, total);
    }
    show(total);
    return total.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rowlock::sim

int main(int argc, char** argv) {
    try {
        return rowlock::sim::main(argc, argv);
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "simulate: %s; see --help\n", failure.what());
        return 64;
    }
}
