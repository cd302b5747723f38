#include "cli/serve/serve_module.hpp"

#include "cli/serve/server.hpp"
#include "cli/signals.hpp"
#include "cli/text.hpp"
#include <rowlock/version.hpp>

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;

serving::access access_of(const serve_options& options, const serving::listen_address& at) {
    if (options.token_file.empty() && !at.loopback) {
        throw failure{usage, fmt::format("--listen {}: other machines can reach that address; give "
                                         "--token-file, so that they need a token to look",
                                         options.listen)};
    }
    if (options.token_file.empty() && options.allow_break) {
        throw failure{usage,
                      "--allow-break needs --token-file: any user of this machine, and any "
                      "program on it, can send requests here"};
    }
    return {options.allow_break,
            options.token_file.empty() ? "" : serving::access::read_token(options.token_file)};
}

int run_server(const serve_options& options) {
    const auto at = serving::parse_listen_address(options.listen);
    const auto who = access_of(options, at);
    const database in = find_database(options.database);
    with_tables(in, [&] {
        client locks{in.source, tool_options()};
        return locks.list({}, {.limit = 1});
    });
    // Before the server's threads begin, which inherit the mask.
    blocked_signals signals{{SIGINT, SIGTERM, SIGHUP}};
    const serving::server running{in, options, at, who};
    print(
        fmt::format("http://{}/ shows {}\n", at.text(running.port()), escaped(description_of(in))));
    int number = 0;
    while (number == 0) {
        number = signals.wait(1s);
        if (!running.is_running())
            throw failure{system_failure, "the server has stopped by itself"};
    }
    const int code = number == SIGTERM ? int{success} : signal_base + number;
    // A statement may wait for the database for long. Nothing is lost with it: they read, or break,
    // which the database has done or not.
    std::thread{[code] {
        std::this_thread::sleep_for(2s);
        std::_Exit(code);
    }}.detach();
    return code;
}

}  // namespace
}  // namespace rowlock::cli

const rowlock::cli::serve_module rowlock_serve{rowlock::version_string, rowlock::cli::run_server};
