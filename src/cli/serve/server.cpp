#include "cli/serve/server.hpp"

#include "cli/blockers.hpp"
#include "cli/exit_code.hpp"
#include "cli/history_json.hpp"
#include "cli/measure.hpp"
#include "cli/number.hpp"
#include "cli/serve/breaking.hpp"
#include "cli/serve/feed.hpp"
#include "cli/serve/json_views.hpp"
#include "cli/serve/page_files.hpp"
#include <rowlock/error.hpp>
#include <rowlock/metrics.hpp>
#include <rowlock/version.hpp>

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace rowlock::cli::serving {
namespace {

using namespace std::chrono_literals;

constexpr const char* json_type = "application/json";
/// Streams to pages take a thread each, and so do requests that wait for the database; the rest
/// answers others.
constexpr std::size_t most_feeds = 48;
constexpr int most_readers = 24;
constexpr std::size_t threads = 96;
/// A measurement is given to all that ask within this time.
constexpr auto metrics_last = 5s;
/// Where a look for blockers locks rows, one lock's are locked for a fortieth of the time.
constexpr std::chrono::milliseconds blockers_last = 10s;

constexpr int bad_request = 400;
constexpr int status_unauthorized = 401;
constexpr int not_found_status = 404;
constexpr int conflict = 409;
constexpr int server_error = 500;
constexpr int unavailable = 503;

void answer(httplib::Response& to, const json& value) {
    to.set_content(text_of(value), json_type);
}

void answer_problem(httplib::Response& to, int status, const char* kind,
                    const std::string& message) {
    to.status = status;
    answer(to, {{"error", {{"kind", kind}, {"message", message}}}});
}

int status_of(int code) {
    switch (code) {
        case usage:
            return bad_request;
        case busy:
            return conflict;
        case unreachable:
        case no_permission:
        case refused:
        case misconfigured:
            return unavailable;
        default:
            return server_error;
    }
}

void answer_exception(httplib::Response& to, const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const error& failed) {
        const int code = exit_code_of(failed.kind());
        answer_problem(to, status_of(code), kind_of(code), message_of(failed));
    } catch (const failure& failed) {
        answer_problem(to, status_of(failed.code()), failed.kind(), failed.what());
    } catch (...) {
        answer_problem(to, server_error, kind_of(system_failure), "an error of the server");
    }
}

/// Nothing is loaded from elsewhere, no page may frame this one, and nothing is kept.
httplib::Headers safe_headers() {
    return {{"Content-Security-Policy",
             "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
             "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
            {"X-Content-Type-Options", "nosniff"},
            {"X-Frame-Options", "DENY"},
            {"Referrer-Policy", "no-referrer"},
            {"Cross-Origin-Resource-Policy", "same-origin"},
            {"Cross-Origin-Opener-Policy", "same-origin"},
            {"Cache-Control", "no-store"}};
}

const char* type_of(std::string_view path) {
    if (path.ends_with(".html")) return "text/html; charset=utf-8";
    if (path.ends_with(".css")) return "text/css; charset=utf-8";
    if (path.ends_with(".svg")) return "image/svg+xml";
    return "text/javascript; charset=utf-8";
}

std::int64_t number_in(const httplib::Request& asked, const char* key, std::int64_t otherwise) {
    if (!asked.has_param(key)) return otherwise;
    if (const auto number = to_number(asked.get_param_value(key))) return *number;
    throw failure{usage, fmt::format("{} must be a number", key)};
}

credentials credentials_of(const httplib::Request& asked) {
    return {.host = asked.get_header_value("Host"),
            .authorization = asked.get_header_value("Authorization"),
            .content_type = asked.get_header_value("Content-Type"),
            .origin = asked.get_header_value("Origin"),
            .fetch_site = asked.get_header_value("Sec-Fetch-Site")};
}

}  // namespace

server::server(const database& in, const serve_options& options, const listen_address& at,
               access who)
    : in_{in},
      options_{options},
      who_{std::move(who)},
      live_{in, options.every},
      sessions_db_{in},
      sessions_{options.every, [this](const auto&) { return sessions_db_.sessions(); }},
      metrics_{metrics_last, [this](const auto&) { return measure(in_); }},
      blockers_{asks_for_rows() ? std::max(options.every, blockers_last) : options.every,
                [this](const auto& name) { return read_blockers(name); }},
      readers_{most_readers},
      places_{most_feeds},
      http_{threads} {
    limit();
    add_page();
    add_data();
    add_break();
    port_ = at.port == 0 ? http_.bind_to_any_port(at.host)
                         : (http_.bind_to_port(at.host, at.port) ? at.port : -1);
    if (port_ <= 0) {
        throw failure{system_failure,
                      fmt::format("cannot listen on {}: another program does, or it is no address "
                                  "of this machine",
                                  at.text(at.port))};
    }
    http_.listen_for_many();
    thread_ = std::jthread{[this] {
        http_.listen_after_bind();
        ended_ = true;
    }};
}

server::~server() {
    live_.stop();
    http_.end_connections();
    // stop() has no effect on one that does not run yet.
    while (!ended_ && !http_.is_running()) std::this_thread::yield();
    http_.stop();
}

void server::limit() {
    constexpr std::size_t longest_request = 16UL * 1024;
    http_.set_payload_max_length(longest_request);
    http_.set_tcp_nodelay(true);
    // Not SO_REUSEPORT, which the library sets: with it a second server would share the port.
    http_.set_socket_options([](int socket) {
        const int yes = 1;
        ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    http_.set_default_headers(safe_headers());
    http_.set_exception_handler([](const request&, response& to, const std::exception_ptr& thrown) {
        answer_exception(to, thrown);
    });
    http_.set_pre_routing_handler([this](const request& asked, response& to) {
        // It is the library's own, which goes on with it. A part of an answer could be asked for a
        // thousand times, and Brotli takes a minute for what is read in a tenth of a second.
        auto& mine = const_cast<request&>(asked);
        mine.ranges.clear();
        mine.headers.erase("Accept-Encoding");
        const auto refused = refuses(asked);
        if (!refused) return httplib::Server::HandlerResponse::Unhandled;
        answer_problem(to, refused->status, "refused", refused->message);
        if (refused->status == status_unauthorized) to.set_header("WWW-Authenticate", "Bearer");
        return httplib::Server::HandlerResponse::Handled;
    });
    http_.set_error_handler([](const request&, response& to) {
        if (to.body.empty()) answer_problem(to, to.status, "no", "there is no such page");
    });
}

/// Everything but the page needs the right to read; what the router does not know, too.
std::optional<refusal> server::refuses(const request& asked) const {
    const auto with = credentials_of(asked);
    const bool page = std::ranges::any_of(embedded::page_files(), [&](const auto& file) {
        return asked.path == "/" || asked.path == "/" + std::string{file.path};
    });
    if (page) return who_.of_page(with);
    if (auto refused = who_.of_reading(with)) return refused;
    if (asked.method == "GET") return std::nullopt;
    // What a body expands to has no limit.
    if (asked.has_header("Content-Encoding") || asked.has_header("Transfer-Encoding")) {
        return refusal{bad_request, "the body must be plain, with a Content-Length"};
    }
    return who_.of_breaking(with);
}

void server::add_page() {
    for (const auto& file : embedded::page_files()) {
        const auto serve = [&file](const request&, response& to) {
            to.set_content(file.text.data(), file.text.size(), type_of(file.path));
        };
        std::string pattern = "/" + std::string{file.path};
        for (auto dot = pattern.find('.'); dot != std::string::npos;
             dot = pattern.find('.', dot + 2)) {
            pattern.insert(dot, 1, '\\');
        }
        http_.Get(pattern, serve);
        if (file.path == "index.html") http_.Get("/", serve);
    }
}

/// For a request that may wait for the database: some at a time, so that a database that hangs
/// leaves threads to others.
template <typename Action>
httplib::Server::Handler server::one_of_some(Action action) {
    return [this, action = std::move(action)](const request& asked, response& to) {
        if (!readers_.try_acquire()) {
            return answer_problem(to, unavailable, "busy",
                                  "too many requests wait for the database");
        }
        const auto release = [](std::counting_semaphore<>* readers) { readers->release(); };
        const std::unique_ptr<std::counting_semaphore<>, decltype(release)> taken{&readers_,
                                                                                  release};
        action(asked, to);
    };
}

void server::add_data() {
    http_.Get("/api/about", [this](const request&, response& to) {
        answer(to, {{"database", description_of(in_)},
                    {"rowlock", version_string},
                    {"every_ms", options_.every.count()},
                    {"blockers_on_request", asks_for_rows()},
                    {"breaks", who_.allows_break()}});
    });
    http_.Get("/api/events", [this](const request&, response& to) { answer_events(to); });
    http_.Get("/api/locks", one_of_some([this](const request&, response& to) {
                  // Many may ask at once for megabytes: the text is not copied.
                  const auto now = live_.latest();
                  to.set_content_provider(
                      now->text.size(), json_type,
                      [now](std::size_t at, std::size_t size, httplib::DataSink& sink) {
                          return sink.write(now->text.data() + at, size);
                      });
              }));
    http_.Get("/api/lock",
              one_of_some([this](const request& asked, response& to) { answer_lock(asked, to); }));
    http_.Get("/api/blockers", one_of_some([this](const request& asked, response& to) {
                  const lock_name name{asked.get_param_value("name")};
                  const auto seen = blockers_.get(name.str());
                  auto all = seen->all;
                  all["read_ms_ago"] = std::chrono::floor<std::chrono::milliseconds>(
                                           std::chrono::steady_clock::now() - seen->at)
                                           .count();
                  answer(to, all);
              }));
    http_.Get("/api/sessions", one_of_some([this](const request&, response& to) {
                  answer(to, sessions_to_json(*sessions_.get()));
              }));
    http_.Get("/api/history", one_of_some([this](const request& asked, response& to) {
                  answer_history(asked, to);
              }));
    http_.Get("/metrics", one_of_some([this](const request&, response& to) {
                  to.set_content(*metrics_.get(), rowlock::metrics::content_type);
              }));
}

void server::add_break() {
    http_.Post("/api/break", one_of_some([this](const request& asked, response& to) {
                   answer(to, break_hold(in_, asked.body, asked.remote_addr));
               }));
}

void server::answer_lock(const request& asked, response& to) {
    constexpr std::size_t most = 1'000;
    const auto now = live_.latest();
    const std::string key = asked.get_param_value("kind") + ":" + asked.get_param_value("name");
    const auto& locks = now->all.locks;
    const auto found = std::ranges::find(locks, key, key_of);
    if (found == locks.end()) {
        return answer_problem(to, not_found_status, "no", "it is neither held nor waited for");
    }
    answer(to, lock_to_json(*found, most));
}

/// MySQL and MariaDB name a transaction only while another one waits for the same row. A holder's
/// next fence stands in line for that time, a quarter of a second: the page asks there once a
/// person wants it, elsewhere as often as it reads; and whoever asks how often, a lock's rows are
/// asked for once in some seconds.
bool server::asks_for_rows() const {
    return in_.source.speaks() == sql::dialect::mysql;
}

server::blockers_seen server::read_blockers(const std::string& name) const {
    constexpr auto patience = 3s;
    const auto at = std::chrono::steady_clock::now();
    const auto all = detail::read_blocking_transactions(in_.source, name, at + patience);
    json found = to_json(all.found);
    for (std::size_t i = 0; i < found.size(); ++i) {
        found[i]["text"] = cli::text_of(in_, all.found[i]);
    }
    return {.at = at, .all = {{"transactions", std::move(found)}, {"note", all.note}}};
}

void server::answer_history(const request& asked, response& to) const {
    constexpr std::int64_t most = 1'000;
    const auto limit = std::clamp<std::int64_t>(number_in(asked, "limit", most), 1, most);
    answer(to, to_json(view::read_past(in_.source, {.name = asked.get_param_value("name"),
                                                    .limit = static_cast<int>(limit)})));
}

/// Sends a page what changes, until it goes, or leaves its place to another.
void server::answer_events(response& to) {
    const auto place = places_.take();
    if (place == nullptr) {
        return answer_problem(to, unavailable, "busy", "too many pages are open");
    }
    auto sent = std::make_shared<feed>(live_);
    to.set_chunked_content_provider(
        "text/event-stream",
        [sent, place](std::size_t, httplib::DataSink& sink) {
            if (place->is_taken() || http_server::client_has_left()) return false;
            return sent->send(
                [&](std::string_view text) { return sink.write(text.data(), text.size()); });
        },
        [this, place](bool) { places_.leave(place); });
}

}  // namespace rowlock::cli::serving
