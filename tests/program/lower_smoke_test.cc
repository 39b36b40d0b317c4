#include <gtest/gtest.h>
#include <chrono>
#include <iostream>
#include "graph/passes.h"
#include "graph/zoo.h"
#include "program/lower.h"
#include "program/text.h"
#include "program/verify.h"
namespace nlsplit {
Cluster abc(int n){ Cluster c; for(int i=0;i<n;++i){ std::string s(1,char('a'+i)); c.hosts.push_back({s,false}); c.devices.push_back({std::string(1,char('A'+i)),HostId(size_t(i)),DeviceKind::cpu,bytes(int64_t{1}<<33),Isa::v3}); } c.hosts.push_back({"sw",true}); for(int i=0;i<n;++i) c.links.push_back({"l",HostId(size_t(i)),HostId(size_t(n)),bytes_per_second(125e6),seconds(1e-4),true}); return c; }
TEST(Smoke, SimpleCnn){
  Model m = zoo_model("simple_cnn").value();
  Graph g = optimize(m.graph, m.weights).value();
  std::cout << to_string(g);
  KernelGraph k = choose_kernels(g,{Isa::v3}).value();
  Cluster c = abc(3);
  Plan p; p.micro_batches=2; p.stages=parse_stages({"..relu1@A","..relu2@B","rest@C"},g,c,nullptr).value();
  auto r = lower(k,p,c,{HostId(0),HostId(0)},nullptr);
  ASSERT_TRUE(r.ok()) << r.error().to_string();
  std::cout << to_string(*r);
  auto v = verify(*r); EXPECT_TRUE(v.ok()) << v.error().to_string();
}
TEST(Smoke, Resnet50){
  Model m = zoo_model("resnet50").value();
  Graph g = optimize(m.graph, m.weights).value();
  std::cout << g.nodes.size() << " nodes\n";
  KernelGraph k = choose_kernels(g,{Isa::v3}).value();
  Cluster c = abc(4);
  for (std::vector<std::string> parts : {std::vector<std::string>{"..layer1.0@A","..layer2.1@B","..layer3.2@C","rest@D"},{"rest@A+B+C+D"},{"..layer2.0@A","..layer3.0@B+C","rest@D"},{"..layer2.0@A","..layer3.0@B","rest@A"},{"..layer2.0@B","..layer3.0@A+C","..layer4.0@B+A","rest@D"}}) {
  for (int mb : {1, 16, 64}) {
  Plan p; p.micro_batches=mb; p.stages=parse_stages(parts,g,c,nullptr).value();
  auto t0=std::chrono::steady_clock::now();
  int reps=50;
  for(int i=0;i<reps;++i){ auto r = lower(k,p,c,{HostId(0),HostId(3)},nullptr); ASSERT_TRUE(r.ok()) << r.error().to_string(); }
  auto t1=std::chrono::steady_clock::now();
  auto r = lower(k,p,c,{HostId(0),HostId(3)},nullptr);
  auto v = verify(*r); EXPECT_TRUE(v.ok()) << v.error().to_string();
  std::cout << to_string(p,g,c) << " mb " << mb << " " << std::chrono::duration<double,std::micro>(t1-t0).count()/reps << " us";
  for (auto&d : r->devices) std::cout << " " << d.name << " arena " << d.arena.value() << " slots " << d.order.size() << " seg " << d.segments.size();
  std::cout << "\n";
  }}
}
}
