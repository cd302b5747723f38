#include "cli/commands.hpp"
#include "cli/json.hpp"
#include "cli/progress_line.hpp"
#include "cli/signals.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace rowlock::cli {
namespace {

void print_report(const reap_report& done, bool as_json) {
    if (!as_json) return print(to_string(done) + "\n");
    print(json_line({{"sessions_ended", done.sessions_ended},
                     {"releases_requested", done.releases_requested},
                     {"leases_handed_over", done.leases_handed_over},
                     {"leases_freed", done.leases_freed},
                     {"waiters_removed", done.waiters_removed},
                     {"sessions_deleted", done.sessions_deleted},
                     {"leases_deleted", done.leases_deleted},
                     {"leases_pending", done.leases_pending},
                     {"permits_returned", done.permits_returned},
                     {"counters_corrected", done.counters_corrected},
                     {"rounds_deleted", done.rounds_deleted},
                     {"history_deleted", done.history_deleted}}));
}

}  // namespace

int reap(const reap_options& options) {
    const database in = find_database(options.database);
    blocked_signals signals{{SIGINT, SIGTERM, SIGHUP}};
    const auto round = [&] {
        progress_line progress{"reaping"};
        auto with = options.reaper;
        with.on_step = [&](std::string_view doing) { progress.set(std::string{doing}); };
        return with_tables(in, [&] { return rowlock::reap(in.source, with); });
    };
    print_report(round(), options.json);
    if (!options.every) return success;
    // A round may fail for a while: a daemon reports it and goes on.
    while (signals.wait(*options.every) == 0) {
        try {
            print_report(round(), options.json);
        } catch (const error& failed) {
            complain("a round failed and will be repeated: " + message_of(failed));
        }
    }
    return success;
}

}  // namespace rowlock::cli
