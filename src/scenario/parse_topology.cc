// `topology`: hosts, switches and links from a few figures, or from a platform file.
#include <fmt/format.h>

#include <algorithm>

#include "scenario/parse_cluster.h"

namespace nlsplit::inline scenario {

namespace {

constexpr int64_t max_count = 1'000'000;  // of anything in a topology; what comes of them is checked by add_topology
constexpr size_t max_levels = 16;
constexpr size_t max_sites = 1000;

constexpr std::array<std::string_view, 8> kinds = {"star",     "racks", "wan",       "wifi",
                                                   "fat_tree", "torus", "dragonfly", "simgrid"};
enum Kind : size_t { star, racks, wan, wifi, fat_tree, torus, dragonfly, simgrid };

Result<int64_t> need_count(const Source& source, const Fields& fields, std::string_view key) {
  ASSIGN_OR_RETURN(const Yaml* node, fields.need(key));
  return read_integer(source, *node, key, 1, max_count);
}

Result<LinkSpec> need_link(const Source& source, const Fields& fields, std::string_view key) {
  ASSIGN_OR_RETURN(const Yaml* node, fields.need(key));
  return read_link_spec(source, *node, key);
}

Result<Topology> parse_wan(const Source& source, const Fields& fields) {
  Wan wan;
  ASSIGN_OR_RETURN(const Yaml* sites, fields.need("sites"));
  if (!sites->is_map() || sites->keys.empty())
    return source.at(*sites, "sites must be a map, e.g. {paris: {hosts: 4, link: {bandwidth: 10Gbps, latency: 20us}}}");
  if (sites->keys.size() > max_sites) return source.at(*sites, fmt::format("more than {} sites", max_sites));
  for (size_t i = 0; i < sites->keys.size(); ++i) {
    Wan::Site site;
    ASSIGN_OR_RETURN(site.name, read_name(source, sites->keys[i], "a site"));
    ASSIGN_OR_RETURN(const Fields inner,
                     Fields::open(source, sites->items[i], fmt::format("site '{}'", site.name), {"hosts", "link"}));
    ASSIGN_OR_RETURN(site.hosts, need_count(source, inner, "hosts"));
    ASSIGN_OR_RETURN(site.link, need_link(source, inner, "link"));
    wan.sites.push_back(std::move(site));
  }
  return Topology(std::move(wan));
}

Result<Topology> parse_fat_tree(const Source& source, const Fields& fields) {
  FatTreeNetwork network;
  ASSIGN_OR_RETURN(const Yaml* levels, fields.need("levels"));
  RETURN_IF_ERROR(expect_list(source, *levels, "levels, from the hosts up,"));
  if (levels->items.empty() || levels->items.size() > max_levels)
    return source.at(*levels, fmt::format("a fat tree has 1 to {} levels", max_levels));
  for (size_t i = 0; i < levels->items.size(); ++i) {
    ASSIGN_OR_RETURN(const Fields inner, Fields::open(source, levels->items[i], fmt::format("level {}", i + 1),
                                                      {"down", "up", "parallel", "link"}));
    FatTree::Level level;
    ASSIGN_OR_RETURN(level.down, need_count(source, inner, "down"));
    if (inner.find("up") != nullptr) {
      ASSIGN_OR_RETURN(level.up, need_count(source, inner, "up"));
    }
    if (inner.find("parallel") != nullptr) {
      ASSIGN_OR_RETURN(level.parallel, need_count(source, inner, "parallel"));
    }
    ASSIGN_OR_RETURN(const LinkSpec link, need_link(source, inner, "link"));
    network.shape.levels.push_back(level);
    network.links.push_back(link);
  }
  return Topology(std::move(network));
}

Result<Topology> parse_torus(const Source& source, const Fields& fields) {
  TorusNetwork network;
  ASSIGN_OR_RETURN(const Yaml* shape, fields.need("shape"));
  RETURN_IF_ERROR(expect_list(source, *shape, "the shape of a torus, e.g. [4, 4, 4],"));
  if (shape->items.empty() || shape->items.size() > max_levels)
    return source.at(*shape, fmt::format("a torus has 1 to {} axes", max_levels));
  for (const Yaml& item : shape->items) {
    ASSIGN_OR_RETURN(const int64_t extent, read_integer(source, item, "an extent", 1, max_count));
    network.shape.shape.push_back(extent);
  }
  ASSIGN_OR_RETURN(network.link, need_link(source, fields, "link"));
  return Topology(std::move(network));
}

Result<Fields> open_kind(const Source& source, const Yaml& node, size_t kind) {
  const std::string what = fmt::format("topology '{}'", kinds[kind]);
  switch (kind) {
    case Kind::star:
      return Fields::open(source, node, what, {"kind", "hosts", "link", "within"});
    case Kind::racks:
      return Fields::open(source, node, what, {"kind", "racks", "hosts", "link", "uplink", "within"});
    case Kind::wan:
      return Fields::open(source, node, what, {"kind", "sites", "within"});
    case Kind::wifi:
      return Fields::open(source, node, what, {"kind", "hosts", "link", "within"});
    case Kind::fat_tree:
      return Fields::open(source, node, what, {"kind", "levels", "within"});
    case Kind::torus:
      return Fields::open(source, node, what, {"kind", "shape", "link", "within"});
    case Kind::dragonfly:
      return Fields::open(source, node, what,
                          {"kind", "groups", "routers", "hosts", "link", "local", "global", "within"});
    default:
      return Fields::open(source, node, what, {"kind", "file"});
  }
}

Result<Topology> parse_shape(const Source& source, const Fields& fields, size_t kind) {
  switch (kind) {
    case Kind::star: {
      Star star;
      ASSIGN_OR_RETURN(star.hosts, need_count(source, fields, "hosts"));
      ASSIGN_OR_RETURN(star.link, need_link(source, fields, "link"));
      return Topology(star);
    }
    case Kind::racks: {
      Racks racks;
      ASSIGN_OR_RETURN(racks.racks, need_count(source, fields, "racks"));
      ASSIGN_OR_RETURN(racks.hosts, need_count(source, fields, "hosts"));
      ASSIGN_OR_RETURN(racks.link, need_link(source, fields, "link"));
      ASSIGN_OR_RETURN(racks.uplink, need_link(source, fields, "uplink"));
      return Topology(racks);
    }
    case Kind::wan:
      return parse_wan(source, fields);
    case Kind::wifi: {
      Wifi wifi;
      ASSIGN_OR_RETURN(wifi.hosts, need_count(source, fields, "hosts"));
      ASSIGN_OR_RETURN(const Yaml* link, fields.need("link"));
      ASSIGN_OR_RETURN(const Fields inner, Fields::open(source, *link, "link", {"bandwidth", "latency"}));
      ASSIGN_OR_RETURN(wifi.link, read_link_spec(source, inner));
      wifi.link.full_duplex = false;  // one channel
      return Topology(wifi);
    }
    case Kind::fat_tree:
      return parse_fat_tree(source, fields);
    case Kind::torus:
      return parse_torus(source, fields);
    default: {
      DragonflyNetwork network;
      ASSIGN_OR_RETURN(network.shape.groups, need_count(source, fields, "groups"));
      ASSIGN_OR_RETURN(network.shape.routers, need_count(source, fields, "routers"));
      ASSIGN_OR_RETURN(network.shape.hosts, need_count(source, fields, "hosts"));
      ASSIGN_OR_RETURN(network.link, need_link(source, fields, "link"));
      ASSIGN_OR_RETURN(network.local, need_link(source, fields, "local"));
      ASSIGN_OR_RETURN(network.global, need_link(source, fields, "global"));
      return Topology(network);
    }
  }
}

// The hosts of a platform file; what lies between them is asked for when it is known which of them are used.
Status parse_platform(const Source& source, const Fields& fields, const ScenarioOptions& options,
                      ParsedTopology& parsed) {
  ASSIGN_OR_RETURN(const Yaml* file, fields.need("file"));
  ASSIGN_OR_RETURN(const std::string name, read_text(source, *file, "a SimGrid platform file"));
  parsed.file = beside(source.file, name);
  if (!options.platforms.hosts)
    return source.at(*file, unsupported("this program cannot read SimGrid platforms; nlsim can"));
  auto hosts = options.platforms.hosts(parsed.file);
  if (!hosts.ok()) return source.at(*file, hosts.error());
  parsed.file_hosts = std::move(hosts).value();
  return ok_status();
}

}  // namespace

Result<ParsedTopology> parse_topology(const Source& source, const Yaml& node, const ScenarioOptions& options,
                                      Cluster& cluster) {
  if (!node.is_map())
    return source.at(node,
                     "topology must be a map, e.g. {kind: star, hosts: 8, link: {bandwidth: 10Gbps, latency: "
                     "20us}}");
  ParsedTopology parsed;
  parsed.node = &node;
  const auto key = std::ranges::find(node.keys, "kind", &Yaml::text);
  if (key == node.keys.end()) return source.at(node, fmt::format("topology lacks 'kind': {}", one_of(kinds)));
  const Yaml& kind_node = node.items[static_cast<size_t>(key - node.keys.begin())];
  ASSIGN_OR_RETURN(const size_t kind, read_choice(source, kind_node, "topology", kinds));
  ASSIGN_OR_RETURN(const Fields fields, open_kind(source, node, kind));
  if (kind == Kind::simgrid) {
    RETURN_IF_ERROR(parse_platform(source, fields, options, parsed));
    return parsed;
  }
  ASSIGN_OR_RETURN(const Topology topology, parse_shape(source, fields, kind));
  if (const Status made = add_topology(cluster, topology); !made.ok()) return source.at(node, made.error());
  for (size_t h = 0; h < cluster.hosts.size(); ++h) {
    if (!cluster.hosts[h].is_switch) parsed.hosts.push_back(HostId(h));
  }
  if (const Yaml* within = fields.find("within")) {
    ASSIGN_OR_RETURN(parsed.within, read_link_spec(source, *within, "within"));
  }
  return parsed;
}

}  // namespace nlsplit::inline scenario
