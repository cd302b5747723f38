#include "cli/command_line.hpp"

#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/hidden_url.hpp"
#include "cli/near_names.hpp"
#include "cli/number.hpp"
#include "cli/text.hpp"
#include <rowlock/error.hpp>
#include <rowlock/version.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr const char* database_help =
    "\nThe database is --url, else ROWLOCK_URL, else the first line of the file that\n"
    "ROWLOCK_URL_FILE names; that file must be readable by its owner alone:\n"
    "  postgresql://user@host:5432/db   mysql://user@host:3306/db   sqlite:/path/to/file\n"
    "?rowlock_prefix=shop_ behind it is for tables of other names than rowlock_session and so\n"
    "on, ?rowlock_schema=locks for those in another schema (PostgreSQL).\n"
    "--local, or `local` instead of a URL, is a SQLite file of this user below ~/.local/state.\n"
    "Nothing falls back to it: sudo, cron, systemd and `rowlock run` pass no variables on.\n"
    "A password on the command line shows in ps until rowlock has started and wiped it. Better\n"
    "are ROWLOCK_URL_FILE, ~/.pgpass, or ROWLOCK_URL.\n"
    "Durations are 500ms, 30s, 5m, 2h, 1d; a bare number is seconds.\n\n";

constexpr const char* more_help = "\nThe database, durations, exit codes: rowlock --help\n";

constexpr const char* general_help =
    "\nLocks in the SQL database you already run.\n\n"
    "Examples:\n"
    "  rowlock migrate                        # make the tables, once\n"
    "  rowlock run nightly -- ./report.sh     # on one machine at a time\n"
    "  rowlock run -n nightly -- ./report.sh  # or skip it, if it runs elsewhere\n"
    "  rowlock ls                             # locks, their holders, since when\n"
    "  rowlock show nightly                   # one lock in full, and its queue\n"
    "  rowlock held nightly                   # exit code 0 held, 1 free\n"
    "  rowlock doctor                         # check the database and its settings\n";

constexpr const char* run_help =
    "\nExamples:\n"
    "  rowlock run -nq --busy-exit-code 0 nightly -- ./report.sh    # skip if it runs elsewhere\n"
    "  rowlock run job -- sh -c './write.sh --token \"$ROWLOCK_TOKEN\"'\n"
    "  rowlock run --shared catalogue -- ./report.sh       # beside other --shared commands\n"
    "  rowlock run --limit 3 billing -- ./export.sh        # up to three at a time\n"
    "  rowlock run --lock ledger --lock stock -- ./book.sh # both, or neither\n"
    "  rowlock run -n --once \"$(date +%F)\" --at-least 10m nightly -- ./report.sh  # a day's "
    "report\n\n"
    "COMMAND finds its fencing token in ROWLOCK_TOKEN and the name in ROWLOCK_NAME (of several,\n"
    "one a line); no ROWLOCK_URL without --pass-url. Signals go to its whole process group; "
    "Ctrl-Z\n"
    "does nothing. If the lease is lost, or rowlock is killed, the group gets SIGTERM and, "
    "--grace\n"
    "later, SIGKILL, before another can get the lock; not a process that left the group (setsid).\n"
    "Exit code: that of COMMAND; 75 busy, 69 database unreachable, 70 the lease was lost.\n";

constexpr const char* elect_help =
    "\nCampaigns for the office NAME, and runs COMMAND as its leader: on one of all machines that "
    "run\n"
    "this. If the leader's machine or database connection fails, another follows within --ttl.\n\n"
    "Examples:\n"
    "  rowlock elect scheduler --value http://$(hostname):8080 -- ./scheduler\n"
    "  rowlock observe scheduler                # who leads, now and from now on\n\n"
    "COMMAND finds its term in ROWLOCK_TOKEN, a number above those of all earlier terms. If\n"
    "leadership is lost, rowlock stops COMMAND (rowlock run --help says how) and campaigns again.\n"
    "When COMMAND ends by itself, the next candidate leads; its exit code is that of rowlock.\n";

constexpr const char* quorum_help =
    "\nOne lock over several independent databases, which works while more than half of them do.\n"
    "Where the data is in one database, a lease there and fence() are better: docs/guarantees.md,\n"
    "\"When not to use a quorum lock\". Programs take such locks by the library.\n\n"
    "Examples:\n"
    "  rowlock quorum init --members members.txt      # make them one quorum, once\n"
    "  rowlock quorum status --members members.txt    # who votes, and why one does not\n"
    "  rowlock quorum readmit --position 2 --members members.txt  # after a restore\n"
    "  rowlock quorum restart --members members.txt   # when no majority votes any more\n\n"
    "The file has a URL on each line, 3 to 9 of PostgreSQL, MySQL or MariaDB, in the same order\n"
    "everywhere; only its owner may be able to read it. Run `rowlock migrate` in each before.\n"
    "readmit and restart take a little more than --longest-ttl, and every quorum lock from its\n"
    "holder. Exit code of status: 0 if all vote, 1 if a majority does, else 69.\n";

constexpr const char* observe_help =
    "\nPrints who leads the office NAME, a line whenever that changes, until it is interrupted. "
    "Also\n"
    "of a lock that `rowlock run NAME` takes: its holder is the leader, --note the value.\n\n"
    "Examples:\n"
    "  rowlock observe scheduler\n"
    "  rowlock observe --once scheduler             # exit code 0 if there is a leader, else 1\n"
    "  rowlock observe --json scheduler | jq --unbuffered -r .value\n\n"
    "What it prints may be out of date when it is read: work that needs the lock takes it.\n";

constexpr const char* acquire_help =
    "\nTakes the lock NAME for a fixed time, for a shell script. The lease belongs to no process:\n"
    "nothing renews it, and nothing stops the script when it ends. Prints its fencing token and\n"
    "its grant id. `rowlock run` is safer where it fits.\n\n"
    "Example:\n"
    "  out=$(rowlock acquire --for 10m --wait 30s deploy) || exit\n"
    "  grant=${out#* }\n"
    "  trap 'rowlock release deploy \"$grant\"' EXIT\n"
    "  timeout 9m ./deploy.sh\n";

constexpr const char* renew_help =
    "\nLets a lock that `rowlock acquire` took last at least so long from now: it never ends "
    "earlier\n"
    "than it would. Prints its fencing token and its grant id: the token of a lease is a new one, "
    "and\n"
    "what carries the old one fails its fence from then on. Exit code 1 if the lock is not held "
    "by\n"
    "this grant any more, or if its release was asked for (rowlock break): stop what needs the "
    "lock.\n\n"
    "Example:\n"
    "  out=$(rowlock acquire --for 10m deploy) || exit\n"
    "  timeout 9m ./deploy.sh\n"
    "  rowlock renew --for 10m deploy \"${out#* }\" || exit\n"
    "  timeout 9m ./deploy.sh\n"
    "  rowlock release deploy \"${out#* }\"\n";

constexpr const char* metrics_help =
    "\nWhat is held, waits and is left over, in Prometheus' text format. With --output for the\n"
    "textfile collector of node_exporter: the file is replaced as a whole, and only if all could "
    "be\n"
    "measured, so an alert on its age finds a failure. It only reads; a role with the rights that\n"
    "`rowlock migrate --print-grants ROLE --read-only` prints is enough.\n\n"
    "Examples:\n"
    "  rowlock metrics\n"
    "  rowlock metrics --output /var/lib/prometheus/node-exporter/rowlock.prom  # by cron\n";

constexpr const char* serve_help =
    "\nA page with holders, queues, sessions, histories and deadlock cycles, at / of that address; "
    "and\n"
    "at /metrics what `rowlock metrics` prints. It only reads; a role with the rights that\n"
    "`rowlock migrate --print-grants ROLE --read-only` prints is enough.\n"
    "Without --token-file the address must be a loopback one, and any user of this machine can "
    "look.\n"
    "With it a request needs the token (Authorization: Bearer), for which the page asks. Behind "
    "it\n"
    "is no TLS: a reverse proxy adds that.\n\n"
    "Examples:\n"
    "  rowlock serve                                   # http://127.0.0.1:9643/\n"
    "  rowlock serve --allow-break --token-file token  # umask 077; openssl rand -hex 24 > token\n";

/// Whether it ends with `-- COMMAND [ARGUMENT…]`.
bool runs_a_command(std::string_view name) {
    return name == "run" || name == "elect";
}

class help_format : public CLI::Formatter {
public:
    std::string make_usage(const CLI::App* app, std::string name) const override {
        std::string text = CLI::Formatter::make_usage(app, name);
        if (runs_a_command(app->get_name())) {
            text.insert(text.find_last_not_of('\n') + 1, " -- COMMAND [ARGUMENT…]");
        }
        return text;
    }
};

/// The parser's output.
struct parsed {
    run_options run;  ///< also of elect
    observe_options observe;
    acquire_options acquire;
    renew_options renew;
    release_options release;
    list_options list;
    top_options top;
    waits_options waits;
    history_options history;
    name_options show, held;
    policy_options policy;
    counter_options semaphore, shared;
    break_options break_lock;
    reap_options reap;
    migrate_options migrate;
    fence_token_options fence_token;
    doctor_options doctor;
    metrics_options metrics;
    serve_options serve;
    quorum_options quorum;
    version_options version;
    std::function<int()> action;
};

using duration_setter = std::function<void(milliseconds)>;

CLI::Option* add_duration(CLI::App& app, const std::string& names, zero is, const std::string& help,
                          const duration_setter& set) {
    const std::string name = names.substr(names.rfind(',') + 1);
    return app
        .add_option_function<std::string>(
            names, [=](const std::string& text) { set(parse_duration(name, text, is)); }, help)
        ->type_name("TIME");
}

void add_database(CLI::App& app, database_options& database) {
    auto* url = app.add_option_function<std::string>(
        "--url", [&database](const std::string& text) { database.url = text; }, "The database");
    url->type_name("URL");
    app.add_flag("--local", database.local, "A SQLite file of this user alone")->excludes(url);
    const auto add_name_of = [&app](const char* option, std::optional<std::string>& into,
                                    const char* help) {
        app.add_option_function<std::string>(
               option, [&into](const std::string& text) { into = text; }, help)
            ->type_name("NAME");
    };
    add_name_of("--schema", database.schema,
                "PostgreSQL schema of the tables (rowlock_schema in the URL)");
    add_name_of("--prefix", database.prefix,
                "First part of the tables' names (rowlock_prefix in the URL) [rowlock_]");
    app.footer(app.get_footer() + more_help);
}

void add_json(CLI::App& app, bool& json) {
    app.add_flag("--json", json, "Print JSON");
}

void add_name(CLI::App& app, std::string& name) {
    app.add_option("NAME", name, "The lock: 1 to 255 bytes of UTF-8")->required();
}

void add_wait(CLI::App& app, patience& wait, int& busy_exit_code, int least_exit_code) {
    auto* time = add_duration(app, "-w,--wait", zero::allowed,
                              "Give up after this time; 0 = do not wait; default: no limit",
                              [&wait](milliseconds value) { wait = value; });
    app.add_flag_callback(
           "-n,--no-wait", [&wait] { wait = 0ms; }, "Same as --wait 0")
        ->excludes(time);
    app.add_option("--busy-exit-code", busy_exit_code, "Exit code if another holds the lock")
        ->capture_default_str()
        ->check(CLI::Range(least_exit_code, 255));
}

grant_id to_grant_id(const std::string& text) {
    const auto number = to_number(text);
    if (!number || *number <= 0) {
        throw failure{usage, "GRANT-ID is the second number that `rowlock acquire` printed"};
    }
    return grant_id{*number};
}

CLI::App& add_command(CLI::App& app, parsed& into, const std::string& name, const std::string& help,
                      std::function<int()> action) {
    auto& command = *app.add_subcommand(name, help);
    command.footer("");  // replaces the inherited general footer
    command.callback([&into, action] { into.action = action; });
    return command;
}

// Which of them go together validate() says: here each would take two lines of the help.
void add_kind(CLI::App& app, lock_kind_options& kind) {
    app.add_flag("--shared", kind.shared, "Hold it beside other --shared commands");
    app.add_flag("--exclusive", kind.exclusive, "Hold it alone, as without this option");
    const auto add_number = [&app](const char* name, std::optional<std::int64_t>& into,
                                   const char* help) {
        app.add_option_function<std::int64_t>(
               name, [&into](std::int64_t value) { into = value; }, help)
            ->type_name("NUMBER");
    };
    add_number("--limit", kind.limit, "Run up to so many at a time, over all machines");
    add_number("--weight", kind.weight, "Count as so many of --limit [1]");
}

void add_schedule(CLI::App& app, run_options& options) {
    app.add_option_function<std::string>(
           "--once",
           [&options](const std::string& period) {
               if (period.empty()) throw failure{usage, "--once needs a period, such as the date"};
               options.once = period;
           },
           "Not if a run of this or a later period has succeeded; periods must sort")
        ->type_name("PERIOD");
    add_duration(app, "--at-least", zero::refused,
                 "No other run begins so long after this one began",
                 [&options](milliseconds value) { options.at_least = value; });
    add_duration(app, "--at-most", zero::refused, "The command is stopped after this time",
                 [&options](milliseconds value) { options.at_most = value; });
    add_duration(app, "--skip-if-within", zero::refused, "Not if a run has succeeded so recently",
                 [&options](milliseconds value) { options.skip_if_within = value; });
}

int signal_named(const std::string& name) {
    const std::array known{std::pair{"USR1", SIGUSR1}, std::pair{"USR2", SIGUSR2},
                           std::pair{"HUP", SIGHUP}, std::pair{"INT", SIGINT},
                           std::pair{"TERM", SIGTERM}};
    const auto found =
        std::ranges::find_if(known, [&](const auto& each) { return name == each.first; });
    if (found == known.end()) {
        throw failure{usage, "--ask-signal takes USR1, USR2, HUP, INT or TERM"};
    }
    return found->second;
}

void add_verbose(CLI::App& app, run_options& options) {
    app.add_flag("-v,--verbose", options.verbose,
                 "While it waits, say who holds the lock, as on a terminal");
}

void add_quiet(CLI::App& app, bool& quiet, const std::string& help) {
    app.add_flag("-q,--quiet", quiet, help);
}

void add_ask_signal(CLI::App& app, run_options& options) {
    app.add_option_function<std::string>(
           "--ask-signal",
           [&options](const std::string& name) { options.ask_signal = signal_named(name); },
           "For the command if `break --within` asks for the lock")
        ->type_name("SIGNAL");
}

void add_run(CLI::App& app, parsed& into) {
    auto& options = into.run;
    auto& command = add_command(app, into, "run", "Run a command while holding a lock",
                                [&options] { return run(options); });
    command.footer(run_help);
    command.add_option_function<std::string>(
        "NAME", [&options](const std::string& name) { options.locks.push_back(name); },
        "The lock: 1 to 255 bytes of UTF-8");
    command
        .add_option_function<std::vector<std::string>>(
            "--lock",
            [&options](const std::vector<std::string>& names) {
                options.locks.insert(options.locks.end(), names.begin(), names.end());
            },
            "A further lock: the command holds all or none")
        ->type_name("NAME")
        ->allow_extra_args(false);
    add_wait(command, options.wait, options.busy_exit_code, 0);
    add_duration(command, "--ttl", zero::refused,
                 "How long the lock outlives a rowlock that vanished [30s]",
                 [&options](milliseconds value) { options.ttl = value; });
    add_duration(command, "--grace", zero::allowed,
                 "Between SIGTERM and SIGKILL when the command must stop; up to ttl/6 "
                 "[5s or ttl/6]",
                 [&options](milliseconds value) { options.grace = value; });
    command.add_option("--note", options.note, "Shown by `rowlock ls` and `show`");
    auto* owner = command.add_option("--owner", options.owner,
                                     "Stable name of this process among its restarts");
    command
        .add_flag("--reclaim", options.reclaim,
                  "Take over at once from the predecessor of this --owner, which must be dead")
        ->needs(owner);
    add_kind(command, options.kind);
    add_schedule(command, options);
    add_ask_signal(command, options);
    add_quiet(command, options.quiet,
              "Print nothing if the command does not run: busy, done, too early");
    add_verbose(command, options);
    command.add_flag("--pass-url", options.pass_url, "Give the command ROWLOCK_URL");
    add_database(command, options.database);
}

void add_quorum(CLI::App& app, parsed& into) {
    auto& options = into.quorum;
    auto& command = add_command(app, into, "quorum", "Set up one lock over several databases",
                                [&options] { return quorum(options); });
    command.footer(quorum_help + std::string{more_help});
    command
        .add_option_function<std::string>(
            "ACTION",
            [&options](const std::string& text) {
                using action = quorum_options::action;
                options.what = text == "init"      ? action::init
                               : text == "readmit" ? action::readmit
                               : text == "restart" ? action::restart
                                                   : action::status;
            },
            "init, status, readmit or restart")
        ->check(CLI::IsMember({"init", "status", "readmit", "restart"}))
        ->required();
    command.add_option("--members", options.members, "A file with the URL of each member")
        ->type_name("FILE")
        ->required();
    command.add_option("--position", options.position, "Which one to readmit: its line, from 1")
        ->type_name("NUMBER");
    add_duration(command, "--longest-ttl", zero::refused,
                 "init: no client has a longer ttl; a readmission waits for it [30s]",
                 [&options](milliseconds value) { options.longest_ttl = value; });
    add_json(command, options.json);
}

void add_election(CLI::App& app, parsed& into) {
    auto& options = into.run;
    auto& standing = add_command(app, into, "elect", "Run a command as the leader of an election",
                                 [&options] { return elect(options); });
    standing.footer(elect_help);
    standing
        .add_option_function<std::string>(
            "NAME", [&options](const std::string& name) { options.locks.push_back(name); },
            "The office: 1 to 255 bytes of UTF-8")
        ->required();
    standing.add_option("--value", options.note, "Shown to observers while it leads");
    standing
        .add_option_function<int>(
            "--priority", [&options](int value) { options.priority = value; },
            "The waiting candidate with the greatest leads next [0]")
        ->check(CLI::Range(-1000, 1000))
        ->type_name("NUMBER");
    add_duration(standing, "--ttl", zero::refused,
                 "How long the office stays with a rowlock that vanished [30s]",
                 [&options](milliseconds value) { options.ttl = value; });
    add_duration(standing, "--grace", zero::allowed,
                 "Between SIGTERM and SIGKILL when the command must stop; up to ttl/6 "
                 "[5s or ttl/6]",
                 [&options](milliseconds value) { options.grace = value; });
    add_verbose(standing, options);
    standing.add_flag("--pass-url", options.pass_url, "Give the command ROWLOCK_URL");
    add_database(standing, options.database);

    auto& looking = into.observe;
    auto& onlooker = add_command(app, into, "observe", "Print who leads, whenever that changes",
                                 [&looking] { return observe(looking); });
    onlooker.footer(observe_help);
    add_name(onlooker, looking.name);
    onlooker.add_flag("--once", looking.once, "Print who leads now, and end");
    add_duration(onlooker, "--poll", zero::refused, "Look so often [250ms]",
                 [&looking](milliseconds value) { looking.poll = value; });
    add_json(onlooker, looking.json);
    add_database(onlooker, looking.database);
}

void add_grants(CLI::App& app, parsed& into) {
    auto& taking = into.acquire;
    auto& take = add_command(app, into, "acquire", "Take a lock for a fixed time, for a script",
                             [&taking] { return acquire(taking); });
    take.footer(acquire_help);
    add_name(take, taking.name);
    add_duration(take, "--for", zero::refused, "The lease ends after this time",
                 [&taking](milliseconds value) { taking.duration = value; })
        ->required();
    // Not 0: `out=$(rowlock acquire …) || exit` would go on without the lock.
    add_wait(take, taking.wait, taking.busy_exit_code, 1);
    add_quiet(take, taking.quiet, "Print nothing if another holds the lock");
    take.add_option("--note", taking.note, "Shown by `rowlock ls` and `show`");
    add_kind(take, taking.kind);
    add_json(take, taking.json);
    add_database(take, taking.database);

    const auto add_grant = [](CLI::App& command, rowlock::grant_id& into_id) {
        command
            .add_option_function<std::string>(
                "GRANT-ID", [&into_id](const std::string& text) { into_id = to_grant_id(text); },
                "The second number that `acquire` printed")
            ->required()
            ->type_name("NUMBER");
    };

    auto& keeping = into.renew;
    auto& keep = add_command(app, into, "renew", "Keep a lock that `acquire` took for longer",
                             [&keeping] { return renew(keeping); });
    keep.footer(renew_help);
    add_name(keep, keeping.name);
    add_grant(keep, keeping.grant_id);
    add_duration(keep, "--for", zero::refused, "The lease ends after this time, from now",
                 [&keeping](milliseconds value) { keeping.duration = value; })
        ->required();
    add_json(keep, keeping.json);
    add_database(keep, keeping.database);

    auto& giving = into.release;
    auto& give = add_command(app, into, "release", "Free a lock that `acquire` took",
                             [&giving] { return release(giving); });
    add_name(give, giving.name);
    add_grant(give, giving.grant_id);
    add_json(give, giving.json);
    add_database(give, giving.database);
}

// The commands that show locks, and `break`, which shows one first. A list: long, and without
// branches.
void add_looks(CLI::App& app, parsed& into) {
    auto& listing = into.list;
    auto& ls = add_command(app, into, "ls", "List the locks that are held",
                           [&listing] { return list(listing); });
    ls.footer(
        "\nExamples:\n  rowlock ls\n  rowlock ls --all deploy/\n  rowlock ls --waiting --sort "
        "wait\n"
        "  rowlock ls --older-than 1h\n  rowlock ls --json\n");
    ls.add_option("PREFIX", listing.prefix, "Only names that start with this");
    auto* all = ls.add_flag("-a,--all", listing.all, "Include free locks");
    ls.add_flag("-w,--waiting", listing.waiting, "Only locks with a queue")->excludes(all);
    ls.add_option("--limit", listing.limit, "At most this many")
        ->capture_default_str()
        ->check(CLI::Range(1, 1'000'000));
    auto* after =
        ls.add_option("--after", listing.after, "Continue after this name")->type_name("NAME");
    using order = list_options::order;
    static const std::map<std::string, order> orders{{"name", order::name},
                                                     {"wait", order::wait},
                                                     {"held", order::held},
                                                     {"waiters", order::waiters}};
    ls.add_option_function<std::string>(
          "--sort", [&listing](const std::string& by) { listing.by = orders.at(by); },
          "By name, or the greatest first: longest wait, time held, waiters")
        ->check(CLI::IsMember(orders))
        ->type_name("name|wait|held|waiters")
        ->excludes(after);
    add_duration(ls, "--older-than", zero::refused, "Only leases that were held for so long",
                 [&listing](milliseconds time) { listing.older_than = time; });
    ls.add_option("--host", listing.host, "Only leases that are held there");
    auto* watching = ls.add_flag("--watch", listing.watch, "List them again and again");
    add_duration(ls, "--every", zero::refused, "With --watch: how often; default 2s",
                 [&listing](milliseconds time) { listing.every = time; })
        ->needs(watching);
    add_json(ls, listing.json);
    add_database(ls, listing.database);

    auto& live = into.top;
    auto& top_command =
        add_command(app, into, "top", "Watch the locks that are held and waited for",
                    [&live] { return top(live); });
    top_command.footer(
        "\nIt shows the longest wait first. Keys: up and down choose a lock; enter shows it; b "
        "asks\n"
        "its holder to stop; / filters by the beginning of names; o sorts by another column; q "
        "ends "
        "it.\n");
    top_command.add_option("PREFIX", live.prefix, "Only names that start with this");
    add_duration(top_command, "--every", zero::refused, "How often it looks; default 2s",
                 [&live](milliseconds time) { live.every = time; });
    add_database(top_command, live.database);

    auto& queues = into.waits;
    auto& waiters = add_command(app, into, "waits", "Show who waits for whom, and deadlocks",
                                [&queues] { return waits(queues); });
    waiters.footer(
        "\nA line for each waiter, with its position in the queue and the first holder. Waiters of "
        "a\n"
        "deadlock have the number of their cycle; the cycles follow.\n\n"
        "Exit code 0: no deadlock. 1: there is one, of locks whose names start with PREFIX.\n");
    waiters.add_option("PREFIX", queues.prefix, "Only names that start with this");
    add_json(waiters, queues.json);
    add_database(waiters, queues.database);

    auto& looking = into.show;
    auto& one = add_command(app, into, "show", "Show one lock in full, and its queue",
                            [&looking] { return show(looking); });
    add_name(one, looking.name);
    add_json(one, looking.json);
    add_database(one, looking.database);

    auto& asking = into.held;
    auto& question =
        add_command(app, into, "held", "Report by the exit code whether a lock is held",
                    [&asking] { return held(asking); });
    question.footer(
        "\nExit code 0: held. 1: free. Any other: not known. The answer may be out of date when "
        "it\n"
        "arrives: work that needs the lock takes it, by `rowlock run -n`.\n\n"
        "Example:\n  rowlock held nightly && echo 'the report runs'\n");
    add_name(question, asking.name);
    add_json(question, asking.json);
    add_database(question, asking.database);

    auto& past = into.history;
    auto& shown = add_command(app, into, "history", "Show the history of a lock, or of all",
                              [&past] { return history(past); });
    shown.footer(
        "\nThe database records it after `rowlock migrate --history on` was run there. Times are\n"
        "local, by the database's clock. A line is a hold: who had the lock, from when to when,\n"
        "and how that ended. The records also tell of queues, sessions and capacities.\n\n"
        "Examples:\n  rowlock history nightly\n  rowlock history --since 1h\n  rowlock history "
        "--json --limit 10000\n");
    shown.add_option("NAME", past.name, "Only this lock");
    add_duration(shown, "--since", zero::refused, "Only records not older than this",
                 [&past](milliseconds value) { past.since = value; });
    shown.add_flag("--records", past.records, "The records instead of the holds");
    shown.add_option("--limit", past.limit, "At most this many records, the latest")
        ->capture_default_str()
        ->check(CLI::Range(1, 1'000'000));
    add_json(shown, past.json);
    add_database(shown, past.database);

    auto& breaking = into.break_lock;
    auto& out = add_command(app, into, "break", "Ask the holder of a lock to stop, or take it away",
                            [&breaking] { return break_lock(breaking); });
    out.footer(
        "\nThe holder is asked to stop: it loses its lease, `rowlock run` then stops its command,\n"
        "and the lock passes on. The holder learns of it at once; a remote one on MySQL or\n"
        "MariaDB, or behind a pooler, with its next heartbeat. A holder that does not answer "
        "loses\n"
        "the lock when its session expires, a ttl later at most.\n"
        "--within lets it work on for that time: it learns who asks, and why.\n"
        "--now takes the lock at once: the next holder starts while this one still works. The "
        "token\n"
        "is raised, so that resources which check tokens refuse the old holder.\n");
    add_name(out, breaking.name);
    out.add_option_function<std::int64_t>(
           "--token", [&breaking](std::int64_t value) { breaking.token = fencing_token{value}; },
           "Of several holders, that with this token (`rowlock show`)")
        ->type_name("NUMBER");
    out.add_option_function<std::string>(
           "--kind", [&breaking](const std::string& text) { breaking.of = break_kind(text); },
           "If the name is of several: lease, semaphore or shared_mutex")
        ->check(CLI::IsMember({"lease", "semaphore", "shared_mutex"}))
        ->type_name("KIND");
    auto* patience = add_duration(out, "-w,--wait", zero::allowed,
                                  "Wait this long for the holder to stop [until it must have]",
                                  [&breaking](milliseconds value) { breaking.wait = value; });
    auto* within = add_duration(out, "--within", zero::refused,
                                "Let the holder finish within this time; then it must stop",
                                [&breaking](milliseconds value) { breaking.within = value; });
    auto* why = out.add_option("--reason", breaking.reason,
                               "Why, for the history; with --within also for the holder");
    out.add_flag("--now", breaking.now, "Take the lock while the holder may still work")
        ->excludes(patience)
        ->excludes(why)
        ->excludes(within);
    out.add_flag("-y,--yes", breaking.yes, "Do not ask");
    add_json(out, breaking.json);
    add_database(out, breaking.database);
}

using counter_command = int (*)(counter_options::what, const counter_options&);

/// A group of commands on semaphores or shared_mutexes.
class counter_group {
public:
    counter_group(CLI::App& app, parsed& into, counter_options& options, counter_command run,
                  const char* name, const char* help, const char* examples)
        : into_{into}, options_{options}, run_{run}, group_{*app.add_subcommand(name, help)} {
        group_.footer(examples);
        group_.require_subcommand(1);
        // For all of them, before or after their names.
        add_json(group_, options.json);
        add_database(group_, options.database);
    }
    CLI::App& add(const char* name, const char* help, counter_options::what action) {
        auto& command =
            add_command(group_, into_, name, help,
                        [&options = options_, run = run_, action] { return run(action, options); });
        command.fallthrough();
        return command;
    }
    void add_show(const char* help) {
        auto& looking = add("show", help, counter_options::what::show);
        add_name(looking, options_.name);
        looking.add_option("--limit", options_.limit, "At most this many holders")
            ->check(CLI::Range(1, 10'000));
    }
    void add_list() {
        auto& listing = add("ls", "List them", counter_options::what::list);
        listing.add_option("PREFIX", options_.name, "Only names that start with this");
        listing.add_option("--limit", options_.limit, "At most this many")
            ->check(CLI::Range(1, 1'000'000));
        listing.add_option("--after", options_.after, "Continue after this name")
            ->type_name("NAME");
    }

private:
    parsed& into_;
    counter_options& options_;
    counter_command run_;
    CLI::App& group_;
};

void add_semaphores(CLI::App& app, parsed& into) {
    auto& options = into.semaphore;
    counter_group group{app,
                        into,
                        options,
                        semaphore,
                        "semaphore",
                        "Set, show and list semaphores",
                        "\nExamples:\n  rowlock semaphore set billing 3\n"
                        "  rowlock semaphore show billing\n  rowlock semaphore ls\n"};
    auto& setting = group.add("set", "Set how many permits there are, and make it if it is new",
                              counter_options::what::set);
    add_name(setting, options.name);
    setting.add_option("PERMITS", options.capacity, "The capacity; no holder is disturbed")
        ->required();
    group.add_show("Show one, and the holders of its permits");
    group.add_list();
}

void add_shared_locks(CLI::App& app, parsed& into) {
    counter_group group{app,
                        into,
                        into.shared,
                        shared_locks,
                        "shared",
                        "Show and list shared_mutexes (run --shared, --exclusive)",
                        "\nExamples:\n  rowlock shared show catalogue\n  rowlock shared ls\n"};
    group.add_show("Show one, and its holders");
    group.add_list();
}

void add_policy(CLI::App& app, parsed& into) {
    auto& options = into.policy;
    auto& command =
        add_command(app, into, "policy", "Limit how long a lock may be held, or show the limit",
                    [&options] { return policy(options); });
    command.footer(
        "\n`rowlock reap`, or a reaper of a client, enforces it: each round asks for the release "
        "of "
        "what\n"
        "has been held for longer, as `rowlock break` does. Without a reaper the limit has no "
        "effect.\n"
        "It is for leases, semaphores and shared_mutexes of that name, and stays until it is "
        "removed.\n\n"
        "Examples:\n  rowlock policy nightly --max-hold 2h\n  rowlock policy nightly\n"
        "  rowlock policy nightly --no-max-hold\n");
    add_name(command, options.name);
    auto* limit = add_duration(command, "--max-hold", zero::refused,
                               "The longest time for one grant, from its acquisition on",
                               [&options](milliseconds value) { options.max_hold = value; });
    command.add_flag("--no-max-hold", options.no_max_hold, "Remove that limit")->excludes(limit);
    add_json(command, options.json);
    add_database(command, options.database);
}

// The commands that an operator runs on the tables. A list: long, and without branches.
void add_upkeep(CLI::App& app, parsed& into) {
    auto& reaping = into.reap;
    auto& sweep = add_command(app, into, "reap", "Remove the rows that dead holders left",
                              [&reaping] { return reap(reaping); });
    sweep.footer(
        "\nOnce, for cron; or with --every as a daemon, until SIGTERM or SIGINT. Locks are "
        "right\nwithout it: it keeps the tables small, and enforces `rowlock policy`.\n");
    add_duration(sweep, "--every", zero::refused, "Repeat at this interval",
                 [&reaping](milliseconds value) { reaping.every = value; });
    add_duration(sweep, "--retention", zero::refused,
                 "Delete rows that were idle for this long [1d]",
                 [&reaping](milliseconds value) { reaping.reaper.retention = value; });
    add_duration(sweep, "--history-retention", zero::allowed,
                 "Delete older records of the history; 0 = never [7d]",
                 [&reaping](milliseconds value) { reaping.reaper.history_retention = value; });
    add_duration(sweep, "--grace", zero::allowed,
                 "Between raising the token floor above them and deleting them [2m]",
                 [&reaping](milliseconds value) { reaping.reaper.grace = value; });
    sweep.add_option("--batch", reaping.reaper.batch, "Rows per transaction")
        ->capture_default_str();
    add_json(sweep, reaping.json);
    add_database(sweep, reaping.database);

    auto& moving = into.migrate;
    auto& tables = add_command(app, into, "migrate", "Make or update the tables",
                               [&moving] { return migrate(moving); });
    tables.footer(
        "\nExamples:\n  rowlock migrate --url postgresql://owner@db/shop\n"
        "  rowlock migrate --print --dialect postgresql | less     # for a DBA\n"
        "  rowlock migrate --print-grants shop_app | less\n"
        "  rowlock migrate --status\n"
        "  rowlock migrate --history on                    # see `rowlock history`\n");
    auto* print = tables.add_flag("--print", moving.print, "Print the SQL, change nothing");
    auto* grants = tables.add_option_function<std::string>(
        "--print-grants", [&moving](const std::string& role) { moving.grants_for = role; },
        "Print the GRANTs that ROLE needs to use the tables, change nothing");
    grants->type_name("ROLE")->excludes(print);
    tables
        .add_flag("--read-only", moving.read_only,
                  "Those of a ROLE that looks at locks and metrics, and takes none")
        ->needs(grants);
    tables.add_option("--dialect", moving.dialect,
                      "To print without a database and its URL: postgresql, mysql, sqlite");
    auto* status = tables.add_flag("--status", moving.status,
                                   "Print the version; exit 1 if it is not current");
    tables.add_option("--down-to", moving.down_to, "Go back to this version; 0 removes all tables")
        ->check(CLI::NonNegativeNumber)
        ->excludes(print)
        ->excludes(status);
    status->excludes(print);
    tables
        .add_option("--history", moving.history,
                    "Record every grant and release in a separate table (on), stop that (off), or "
                    "remove it (drop)")
        ->check(CLI::IsMember({"on", "off", "drop"}))
        ->excludes("--down-to")
        ->excludes(status);
    tables.add_flag("-y,--yes", moving.yes, "Do not ask");
    add_json(tables, moving.json);
    add_database(tables, moving.database);

    auto& marking = into.fence_token;
    auto& column = add_command(app, into, "fence-token",
                               "Print the SQL that gives a table of yours a fencing token column",
                               [&marking] { return fence_token(marking); });
    column.footer(
        "\nExamples:\n  rowlock fence-token account --trigger --dialect postgresql > 0007.sql\n");
    column.add_option("TABLE", marking.table, "The table, or schema.table")->required();
    column.add_option("--column", marking.column, "Name of the column")->capture_default_str();
    column.add_flag("--trigger", marking.trigger,
                    "Also a trigger that refuses updates with a smaller token");
    column.add_option("--dialect", marking.dialect,
                      "postgresql, mysql or sqlite; default: the database's");
    add_database(column, marking.database);
}

// The commands that look at the whole database, and at the tool.
void add_checks(CLI::App& app, parsed& into) {
    auto& checking = into.doctor;
    auto& check = add_command(app, into, "doctor", "Check the database and its settings",
                              [&checking] { return doctor(checking); });
    check.footer("\nEach check is ok, warn or fail, with what to do. Exit code 1 if one failed.\n");
    add_json(check, checking.json);
    add_database(check, checking.database);

    auto& measuring = into.metrics;
    auto& measure =
        add_command(app, into, "metrics", "Print metrics of the database for Prometheus",
                    [&measuring] { return metrics(measuring); });
    measure.footer(metrics_help);
    measure
        .add_option_function<std::string>(
            "-o,--output", [&measuring](const std::string& path) { measuring.output = path; },
            "Replace this file instead")
        ->type_name("FILE");
    add_database(measure, measuring.database);

    auto& serving = into.serve;
    auto& page = add_command(app, into, "serve", "Show locks in a browser, and serve metrics",
                             [&serving] { return serve(serving); });
    page.footer(serve_help);
    page.add_option("--listen", serving.listen, "Where: an address of this machine, and a port")
        ->capture_default_str()
        ->type_name("ADDRESS:PORT");
    page.add_option("--token-file", serving.token_file,
                    "Its first line is a token that requests must have")
        ->type_name("FILE");
    page.add_flag("--allow-break", serving.allow_break,
                  "Let those with the token break locks; needs --token-file");
    add_duration(page, "--every", zero::refused, "How often it reads while a page is open [2s]",
                 [&serving](milliseconds time) { serving.every = time; });
    add_database(page, serving.database);

    auto& naming = into.version;
    auto& version_command = add_command(app, into, "version", "Print the version and the drivers",
                                        [&naming] { return version(naming); });
    add_json(version_command, naming.json);
}

/// Takes the command to run out before parsing, verbatim.
std::vector<std::string> split_command(std::vector<std::string>& arguments) {
    if (arguments.empty() || !runs_a_command(arguments.front())) return {};
    const std::string& ours = arguments.front();
    const auto mark = std::find(arguments.begin(), arguments.end(), "--");
    if (mark == arguments.end()) {
        const bool help = std::find_if(arguments.begin(), arguments.end(), [](const auto& each) {
                              return each == "--help" || each == "-h";
                          }) != arguments.end();
        if (help) return {"help"};
        throw failure{usage,
                      fmt::format("no command: rowlock {} NAME -- COMMAND [ARGUMENT…]", ours)};
    }
    std::vector<std::string> command(mark + 1, arguments.end());
    arguments.erase(mark, arguments.end());
    if (command.empty() || command.front().empty()) {
        throw failure{
            usage,
            fmt::format("no command after --: rowlock {} NAME -- COMMAND [ARGUMENT…]", ours)};
    }
    return command;
}

/// Whether an argument at the wrong position may be a URL with a password and must not be printed.
bool may_tell_a_password(const std::string& argument) {
    return argument.find("://") != std::string::npos || argument.find("pass") != std::string::npos;
}

std::string without_passwords(std::string text, const std::vector<std::string>& arguments) {
    for (const auto& each : arguments) {
        if (!may_tell_a_password(each)) continue;
        for (auto at = text.find(each); at != std::string::npos; at = text.find(each, at)) {
            text.replace(at, each.size(), "***");
        }
    }
    return text;
}

/// For the first option in `arguments` that `command` does not have.
std::string option_suggestion(const CLI::App& command, const std::vector<std::string>& arguments) {
    std::vector<std::string> known;
    for (const CLI::Option* each : command.get_options()) {
        for (const auto& name : each->get_lnames()) known.push_back("--" + name);
    }
    for (const auto& each : arguments) {
        const std::string word = each.substr(0, each.find('='));
        if (word.starts_with("--") && std::ranges::find(known, word) == known.end()) {
            return suggestion(word, known);
        }
    }
    return {};
}

void require_known_command(CLI::App& app, const std::vector<std::string>& arguments) {
    if (!arguments.empty() && arguments.front().starts_with('-')) return;
    std::vector<std::string> names;
    for (const CLI::App* each : app.get_subcommands([](CLI::App*) { return true; })) {
        names.push_back(each->get_name());
    }
    if (arguments.empty()) {
        throw failure{
            usage, fmt::format("no command: use {}; see rowlock --help", fmt::join(names, ", "))};
    }
    const std::string& typed = arguments.front();
    if (std::ranges::find(names, typed) != names.end()) return;
    throw failure{usage, fmt::format("{}{}; see rowlock --help",
                                     without_passwords("no such command: " + typed, arguments),
                                     suggestion(typed, names))};
}

void define(CLI::App& app, parsed& into, bool run_alone) {
    app.set_version_flag("--version", std::string{"rowlock "} + version_string);
    app.formatter(std::make_shared<help_format>());
    app.require_subcommand(1);
    app.footer(std::string{general_help} + database_help + exit_code_help());
    add_run(app, into);
    if (run_alone) return;
    add_election(app, into);
    add_grants(app, into);
    add_looks(app, into);
    add_semaphores(app, into);
    add_shared_locks(app, into);
    add_policy(app, into);
    add_upkeep(app, into);
    add_checks(app, into);
    add_quorum(app, into);
}

int parse_and_run(int argc, char** argv) {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    hide_urls(argc, argv);
    parsed into;
    const bool json = std::ranges::find(arguments, "--json") != arguments.end();
    into.run.command = split_command(arguments);
    if (json && into.run.command.empty()) complain_in_json();

    CLI::App app{"", "rowlock"};
    // `rowlock run` starts a tenth sooner without the others.
    define(app, into, !arguments.empty() && arguments.front() == "run");
    require_known_command(app, arguments);
    try {
        app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    } catch (const CLI::CallForHelp&) {
        const auto chosen = app.get_subcommands();
        print(chosen.empty() ? app.help() : chosen.front()->help("rowlock"));
        return success;
    } catch (const CLI::CallForVersion& version) {
        print(std::string{version.what()} + "\n");
        return success;
    } catch (const CLI::ParseError& problem) {
        const auto chosen = app.get_subcommands();
        const std::string command = chosen.empty() ? "" : chosen.front()->get_name() + " ";
        throw failure{
            usage,
            fmt::format("{}{}; see rowlock {}--help", without_passwords(problem.what(), arguments),
                        chosen.empty() ? "" : option_suggestion(*chosen.front(), arguments),
                        command)};
    }
    return into.action();
}

}  // namespace

void describe_to(const std::function<void(const CLI::App&)>& reader) {
    parsed into;
    CLI::App app{"", "rowlock"};
    define(app, into, false);
    reader(app);
}

int execute(int argc, char** argv) {
    try {
        return parse_and_run(argc, argv);
    } catch (const failure& failed) {
        report_failure(failed.code(), failed.kind(), failed.what());
        return failed.code();
    } catch (const error& failed) {
        const int code = exit_code_of(failed.kind());
        report_failure(code, kind_of(code), message_of(failed));
        return code;
    } catch (const std::exception& failed) {
        report_failure(system_failure, kind_of(system_failure), failed.what());
        return system_failure;
    }
}

}  // namespace rowlock::cli
