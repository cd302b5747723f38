// Database URLs are split into the parts of which they were composed, or refused, and no message or
// description contains text from the place of a password.
//
// First byte: which of the four.

#include "driver/url.hpp"

#include "driver/postgresql_target.hpp"
#include "fuzz/target.hpp"
#include <rowlock/driver/mysql.hpp>
#include <rowlock/driver/postgresql.hpp>
#include <rowlock/error.hpp>
#include <rowlock/open.hpp>

#include <algorithm>

namespace {

using fuzz::require;

using fuzz::secret;

std::string encoded(std::string_view text) {
    static constexpr char digits[] = "0123456789ABCDEF";
    std::string made;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        const bool plain =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (plain) {
            made += c;
        } else {
            made += '%';
            made += digits[byte / 16];
            made += digits[byte % 16];
        }
    }
    return made;
}

std::string line_without_nul(fuzz::input& from) {
    std::string text = from.line();
    std::erase(text, '\0');
    return text;
}

void round_trip(fuzz::input& from) {
    const std::string user = line_without_nul(from);
    const std::string password = line_without_nul(from);
    const std::string host = line_without_nul(from);
    const std::string database = line_without_nul(from);
    const auto port = static_cast<std::uint16_t>(from.byte() * 256 + from.byte());
    const std::string name = "a" + line_without_nul(from);
    const std::string value = line_without_nul(from);
    std::string text = "mysql://" + encoded(user) + ":" + encoded(password) + "@" + encoded(host);
    if (port != 0) text += ":" + std::to_string(port);
    text += "/" + encoded(database) + "?" + encoded(name) + "=" + encoded(value);
    const auto read = rowlock::driver::parse_url(text);
    const bool same = read.scheme == "mysql" && read.user == user && read.password == password &&
                      read.host == host && read.port == port && read.database == database &&
                      read.parameters.size() == 1 && read.parameters[0].name == name &&
                      read.parameters[0].value == value;
    require(same, "a URL is taken apart into its parts", text);
}

/// The text that the user sees of `url`, accepted or refused.
std::string shown_of(const std::string& url) {
    try {
        return rowlock::open(url).description();
    } catch (const rowlock::error& refused) {
        const auto kind = refused.kind();
        require(kind == rowlock::errc::invalid_url || kind == rowlock::errc::invalid_options,
                "a refusal has its kind", url);
        return refused.what() + refused.server_message();
    }
}

std::string backslashed(const std::string& text) {
    std::string made;
    for (const char c : text) {
        if (c == '\'' || c == '\\') made += '\\';
        made += c;
    }
    return made;
}

void keep_the_secret(fuzz::input& from) {
    static constexpr std::string_view schemes[] = {"mysql", "mariadb", "postgresql", "postgres"};
    const std::string scheme{schemes[from.below(std::size(schemes))]};
    const std::string before = from.line();
    const std::string behind = from.line();
    static constexpr std::string_view rests[] = {"",
                                                 "sslmode=require",
                                                 "ssl-mode=REQUIRED",
                                                 "connect_timeout=3",
                                                 "rowlock_pooler=none",
                                                 "rowlock_prefix=shop_"};
    const std::string rest{rests[from.below(std::size(rests))]};
    const std::string url = scheme + "://ann:" + before + std::string{secret} + behind +
                            "@db.example/shop" + (rest.empty() ? "" : "?" + rest);
    // The text after "?user=" is a user, and after "?password=" a password, even if it was meant as
    // a part of one.
    const std::size_t question = url.find('?');
    const bool meant =
        question < url.rfind('@') && (url.find("user=", question) != std::string::npos ||
                                      url.find("password=", question) != std::string::npos);
    if (!meant || !scheme.starts_with('p')) {
        require(shown_of(url).find(secret) == std::string::npos, "a password is not shown", url);
    }
    const std::string pairs = "host=db.example user=ann password='" +
                              backslashed(before + std::string{secret} + behind) + "' " + rest;
    require(shown_of(pairs).find(secret) == std::string::npos, "nor in pairs", pairs);
}

std::string text_of(const rowlock::postgresql::settings& set, std::string_view name) {
    const auto found = std::ranges::find(set, name, &rowlock::postgresql::setting::name);
    return found == set.end() ? std::string{} : found->text;
}

/// Several hosts: each is tried by itself, in the order given, with its own port.
void several_hosts(fuzz::input& from) {
    std::vector<std::string> hosts;
    std::vector<std::string> ports;
    std::string list;
    while (!from.empty() && hosts.size() < 20) {
        hosts.push_back("h" + std::to_string(from.byte()));
        ports.push_back(from.below(2) == 0 ? "" : std::to_string(1 + from.byte()));
        list += (list.empty() ? "" : ",") + hosts.back() +
                (ports.back().empty() ? "" : ":" + ports.back());
    }
    const std::string url = "postgresql://ann:x@" + list + "/shop";
    const auto to = rowlock::postgresql::understand(url, {});
    if (hosts.empty()) return;
    require(to.hosts.size() == hosts.size(), "each host is one", url);
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        require(text_of(to.hosts[i], "host") == hosts[i], "in their order", url);
        require(text_of(to.hosts[i], "port") == ports[i], "with its port", url);
        const bool writer = text_of(to.hosts[i], "target_session_attrs") == "read-write";
        require(writer == (hosts.size() > 1), "of several the one that writes", url);
    }
}

void any_url(const std::string& text) {
    (void)shown_of(text);
    try {
        const auto read = rowlock::driver::parse_url(text);
        require(read.host.find('\0') == std::string::npos, "no NUL byte", text);
        auto names = read.parameters;
        std::ranges::sort(names, {}, &rowlock::driver::url_parameter::name);
        const auto twice =
            std::ranges::adjacent_find(names, {}, &rowlock::driver::url_parameter::name);
        require(twice == names.end(), "no parameter twice", text);
    } catch (const rowlock::error& refused) {
        require(refused.kind() == rowlock::errc::invalid_url, "invalid_url", text);
        fuzz::require_no_secret(refused.what());
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::input from{data, size};
    switch (from.below(4)) {
        case 0:
            any_url(from.all());
            break;
        case 1:
            round_trip(from);
            break;
        case 3:
            several_hosts(from);
            break;
        default:
            keep_the_secret(from);
    }
    return 0;
}
