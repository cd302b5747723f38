#include "driver/url.hpp"

#include "sql/table_names.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace rowlock::driver {
namespace {

[[noreturn]] void refuse(std::string_view why) {
    std::string message{"the database URL "};
    message += why;
    throw error{errc::invalid_url, message};
}

int hexadecimal(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool is_plain_name(std::string_view name) {
    return name.size() <= 40 && std::ranges::all_of(name, [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '-';
           });
}

// Returns the part before `mark` and removes both from `text`; takes all of `text` if there is no
// mark.
std::string_view take_until(std::string_view& text, char mark) {
    const std::size_t end = std::min(text.find(mark), text.size());
    const std::string_view taken = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return taken;
}

std::uint16_t parse_port(std::string_view digits) {
    unsigned number = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, failure] = std::from_chars(digits.data(), end, number);
    if (failure != std::errc{} || stop != end || number == 0 ||
        number > std::numeric_limits<std::uint16_t>::max()) {
        refuse(
            "has a port that is not a number from 1 to 65535; characters such as @ : / ? # % in a "
            "user name or password are written percent-encoded");
    }
    return static_cast<std::uint16_t>(number);
}

url_host parse_host(std::string_view text) {
    url_host made;
    std::string_view host;
    if (text.starts_with('[')) {
        const std::size_t end = text.find(']');
        if (end == std::string_view::npos) refuse("has a [ without its ]");
        host = text.substr(1, end - 1);
        text.remove_prefix(end + 1);
        if (!text.empty() && !text.starts_with(':')) refuse("has text behind the ] of its host");
    } else {
        host = text.substr(0, text.find(':'));
        text.remove_prefix(host.size());
    }
    made.host = percent_decoded(host);
    if (text.size() > 1) made.port = parse_port(text.substr(1));
    return made;
}

}  // namespace

std::string percent_decoded(std::string_view text) {
    std::string decoded;
    decoded.reserve(text.size());
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] != '%') {
            decoded += text[at];
            continue;
        }
        const int high = at + 2 < text.size() ? hexadecimal(text[at + 1]) : -1;
        const int low = at + 2 < text.size() ? hexadecimal(text[at + 2]) : -1;
        if (high < 0 || low < 0) refuse("has a % without two hexadecimal digits behind it");
        decoded += static_cast<char>(high * 16 + low);
        at += 2;
    }
    if (decoded.find('\0') != std::string::npos) refuse("holds a NUL byte");
    return decoded;
}

std::vector<url_parameter> parse_parameters(std::string_view text) {
    std::vector<url_parameter> parameters;
    while (!text.empty()) {
        std::string_view value = take_until(text, '&');
        if (value.empty()) continue;
        if (value.find('=') == std::string_view::npos) refuse("has a parameter without =");
        const std::string name = percent_decoded(take_until(value, '='));
        if (name.empty()) refuse("has a parameter without a name");
        if (std::ranges::find(parameters, name, &url_parameter::name) != parameters.end()) {
            refuse("has a parameter twice");
        }
        parameters.push_back({name, percent_decoded(value)});
    }
    return parameters;
}

url parse_url(std::string_view text) {
    const std::size_t colon = text.find("://");
    if (colon == std::string_view::npos) refuse("has no scheme such as mysql://");
    if (text.find('#') != std::string_view::npos) {
        refuse("has a #, which is written %23 in a password");
    }
    url made;
    made.scheme = std::string{text.substr(0, colon)};
    text.remove_prefix(colon + 3);

    std::string_view place = take_until(text, '?');
    std::string_view authority = take_until(place, '/');
    // With a raw / or ? in the password, its rest would be read as the database or a parameter, and
    // shown.
    if (place.find('@') != std::string_view::npos || text.find('@') != std::string_view::npos) {
        refuse(
            "has an @ behind a / or ?, which are written %2F and %3F in a password; an @ that "
            "belongs there is written %40");
    }
    made.parameters = parse_parameters(text);
    made.database = percent_decoded(place);

    // The last @ separates user and host, so an @ in a password does no harm.
    if (const std::size_t at = authority.rfind('@'); at != std::string_view::npos) {
        std::string_view password = authority.substr(0, at);
        made.user = percent_decoded(take_until(password, ':'));
        made.password = percent_decoded(password);
        authority.remove_prefix(at + 1);
    }
    static_cast<url_host&>(made) = parse_host(take_until(authority, ','));
    while (!authority.empty()) made.more_hosts.push_back(parse_host(take_until(authority, ',')));
    return made;
}

sql::table_names take_table_names(std::vector<url_parameter>& from, sql::dialect which) {
    sql::table_names names;
    const auto take = [&from](std::string_view name, std::string& into) {
        const auto found = std::ranges::find_if(
            from, [name](const url_parameter& each) { return each.name == name; });
        if (found == from.end()) return;
        if (found->value.empty()) {
            refuse(std::string{"has an empty "}.append(name) + ": give a name, or leave it out");
        }
        into = std::move(found->value);
        from.erase(found);
    };
    take("rowlock_schema", names.schema);
    take("rowlock_prefix", names.prefix);
    try {
        sql::validate_names(which, names);
    } catch (const error& refused) {
        throw error{errc::invalid_url, std::string{"in the database URL, "} + refused.what()};
    }
    return names;
}

void refuse_parameter(std::string_view scheme, const url_parameter& unknown) {
    std::string message{"the "};
    message.append(scheme).append(" URL has an unknown parameter");
    // Anything else may be part of a password with a raw ? in it.
    if (is_plain_name(unknown.name)) message.append(": ").append(unknown.name);
    throw error{errc::invalid_url, message};
}

void refuse_value(const url_parameter& wrong, std::string_view wanted) {
    std::string message{"the database URL's parameter "};
    message.append(wrong.name).append(" must be ").append(wanted);
    throw error{errc::invalid_url, message};
}

}  // namespace rowlock::driver
