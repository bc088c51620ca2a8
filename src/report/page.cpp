#include <set>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/version.h"
#include "bitgrad/report/report.h"

#include "report/run_data.h"
#include "report/text.h"

namespace bitgrad {
namespace html {
namespace {

// Included in every page: the style sheet (light, dark, print) and the script (values under the pointer).

const char* const kStyle = R"css(
:root{color-scheme:light dark;--bg:#f6f7f9;--panel:#fff;--fg:#1b2330;--soft:#5c6778;--line:#e2e6ec;--good:#117a4b;--bad:#b3261e;
--hit:37,99,235;--miss:217,98,24;--c0:#2563eb;--c1:#d9621a;--c2:#0f8f6b;--c3:#8b46d6;--c4:#c2255c;--c5:#0b7f9e;--c6:#8a6d00;--c7:#596373}
@media (prefers-color-scheme:dark){:root{--bg:#11151b;--panel:#191f28;--fg:#e4e8ee;--soft:#98a3b3;--line:#2b3440;--good:#5fcf9a;--bad:#ff8a80;
--hit:96,154,255;--miss:255,140,70;--c0:#6ea8ff;--c1:#ff9a55;--c2:#4fd1a5;--c3:#c39bff;--c4:#ff7aa8;--c5:#56c8e6;--c6:#e0c14a;--c7:#a3adba}}
*{box-sizing:border-box}
body{overflow-wrap:break-word;margin:0;background:var(--bg);color:var(--fg);font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1240px;margin:0 auto;padding:20px 16px 48px}
h1{font-size:24px;line-height:1.25;margin:0;overflow-wrap:anywhere}
h2{font-size:16px;margin:0 0 10px}
h3{font-size:14px;margin:18px 0 8px}
p{margin:6px 0}
.sub{color:var(--soft);margin:4px 0 16px;overflow-wrap:anywhere}
.badge{display:inline-block;font-size:12px;font-weight:600;border-radius:10px;padding:1px 9px;margin-left:8px;vertical-align:4px;border:1px solid currentColor;color:var(--soft)}
.badge.finished{color:var(--good)}.badge.failed{color:var(--bad)}
.note{color:var(--soft)}main>.note{margin:0 0 14px}
.error{color:var(--bad);white-space:pre-wrap;overflow-wrap:anywhere}
section,details.run{background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:16px;margin:0 0 16px}
details.run>summary{cursor:pointer;font-weight:600;font-size:16px}
details.run section{border:0;padding:16px 0 0;margin:0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:0 0 16px}
.tile{background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:12px 14px;min-width:0}
.tile b{display:block;font-size:21px;line-height:1.3;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:12.5px;display:block;overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr));gap:18px 20px}
figure{margin:0;min-width:0;position:relative;break-inside:avoid}
figcaption{display:flex;flex-wrap:wrap;gap:0 10px;align-items:baseline;margin-bottom:2px}
figcaption b{min-width:0}
figcaption .unit{color:var(--soft);font-size:12px}
.legend{display:flex;flex-wrap:wrap;gap:0 12px;font-size:12px;color:var(--soft);flex-basis:100%}
.legend i{display:inline-block;width:14px;height:3px;border-radius:2px;margin-right:5px;vertical-align:3px}
.dot{display:inline-block;width:10px;height:10px;border-radius:5px;margin-right:6px}
.legend i.faint{opacity:.5}
svg{display:block;width:100%;height:auto;max-width:100%}
svg text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:var(--soft)}
.grid line{stroke:var(--line);stroke-width:1}.grid .axis{stroke:var(--soft);stroke-opacity:.6}
text.y{text-anchor:end}text.x{text-anchor:middle}text.unit{text-anchor:end}
text.end{font-weight:600}
.mark line{stroke:var(--soft);stroke-dasharray:3 3;stroke-opacity:.8}
.cursor{stroke:var(--soft);stroke-opacity:.6}
polyline{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.faint polyline{stroke-width:1.2;stroke-opacity:.5}
.c0 polyline{stroke:var(--c0)}.c1 polyline{stroke:var(--c1)}.c2 polyline{stroke:var(--c2)}.c3 polyline{stroke:var(--c3)}
.c4 polyline{stroke:var(--c4)}.c5 polyline{stroke:var(--c5)}.c6 polyline{stroke:var(--c6)}.c7 polyline{stroke:var(--c7)}
.c0 circle,.t0{fill:var(--c0)!important}.c1 circle,.t1{fill:var(--c1)!important}.c2 circle,.t2{fill:var(--c2)!important}.c3 circle,.t3{fill:var(--c3)!important}
.c4 circle,.t4{fill:var(--c4)!important}.c5 circle,.t5{fill:var(--c5)!important}.c6 circle,.t6{fill:var(--c6)!important}.c7 circle,.t7{fill:var(--c7)!important}
.b0{background:var(--c0)}.b1{background:var(--c1)}.b2{background:var(--c2)}.b3{background:var(--c3)}.b4{background:var(--c4)}.b5{background:var(--c5)}.b6{background:var(--c6)}.b7{background:var(--c7)}
.tip{position:absolute;z-index:2;pointer-events:none;background:var(--fg);color:var(--bg);font-size:12px;line-height:1.4;border-radius:6px;padding:4px 8px;white-space:nowrap;display:none;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto;max-width:100%}
.narrow{max-width:560px}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{text-align:left;padding:4px 12px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}
th:empty{padding:0;border:0}code{overflow-wrap:anywhere}
th{color:var(--soft);font-weight:600;white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
th:last-child,td:last-child{padding-right:0}
.bars{display:grid;grid-template-columns:max-content minmax(60px,1fr) max-content;gap:4px 12px;align-items:center;max-width:720px;font-variant-numeric:tabular-nums}
.bars div{background:var(--line);border-radius:3px;height:10px;overflow:hidden}.bars div i{display:block;height:100%;background:var(--c0)}
.bars span:nth-child(3n){text-align:right}
.histograms{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,144px),1fr));gap:14px 20px}
.bar{fill:var(--c0)}.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr));gap:8px 32px;align-items:start}
.matrix{max-width:520px}.matrix .hit{fill:rgb(var(--hit))}.matrix .miss{fill:rgb(var(--miss))}.matrix .box{fill:none;stroke:var(--line)}
.matrix text{text-anchor:middle}.matrix text.on{fill:#fff}.matrix text.row{text-anchor:end}.matrix .head{font-weight:600}
@media (prefers-color-scheme:dark){.matrix text.on{fill:#10141a}}
.worst{display:grid;grid-template-columns:repeat(auto-fill,minmax(104px,1fr));gap:12px}
.worst div{font-size:12px;line-height:1.35;min-width:0;overflow-wrap:anywhere}
.worst img{width:96px;height:96px;object-fit:contain;image-rendering:pixelated;background:#000;border-radius:4px;display:block;margin-bottom:4px}
pre{margin:0;font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
footer{color:var(--soft);font-size:12px}
@media (max-width:620px){.w{display:none}main{padding:14px 10px 32px}section,details.run{padding:12px}.tile b{font-size:18px}.tiles{grid-template-columns:1fr 1fr;gap:8px}td,th{padding-right:8px}}
@media print{:root{color-scheme:light;--bg:#fff;--panel:#fff;--fg:#1b2330;--soft:#5c6778;--line:#d5dae2;--c0:#2563eb;--c1:#d9621a;--c2:#0f8f6b;--c3:#8b46d6;--c4:#c2255c;--c5:#0b7f9e;--c6:#8a6d00;--c7:#596373;--hit:37,99,235;--miss:217,98,24}
main{max-width:none;padding:0}section,details.run{border:0;padding:8px 0}.charts{grid-template-columns:1fr 1fr}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}tr{break-inside:avoid}.matrix text.on{fill:#fff}}
)css";

const char* const kScript = R"js(
(function(){
var tip=document.createElement('div');tip.className='tip';
function text(x){return Math.abs(x)>=1e-3&&Math.abs(x)<1e6||x===0?String(+x.toPrecision(5)):x.toExponential(3)}
document.querySelectorAll('svg.chart').forEach(function(svg){
var lines=null,cursor=svg.querySelector('.cursor');
function load(){lines=[];svg.querySelectorAll('g[data-v]').forEach(function(g){
var p=g.querySelector('polyline').getAttribute('points').split(' ').map(function(s){return +s.split(',')[0]});
lines.push({label:g.getAttribute('data-l'),x:p,v:g.getAttribute('data-v').split(' ').map(function(s){return s.split(',').map(Number)})})})}
function hide(){tip.style.display='none';cursor.setAttribute('x1',-9);cursor.setAttribute('x2',-9)}
svg.addEventListener('pointerleave',hide);
svg.addEventListener('pointermove',function(e){
if(!lines)load();
var box=svg.getBoundingClientRect(),at=(e.clientX-box.left)/box.width*400,best=null;
lines.forEach(function(l){l.x.forEach(function(x){if(best===null||Math.abs(x-at)<Math.abs(best-at))best=x})});
if(best===null)return;
tip.textContent='';var step=null;
lines.forEach(function(l){var i=0;l.x.forEach(function(x,k){if(Math.abs(x-best)<Math.abs(l.x[i]-best))i=k});
if(Math.abs(l.x[i]-best)>6)return;if(step===null||l.x[i]===best)step=l.v[i][0];
var d=document.createElement('div');d.textContent=l.label+' '+text(l.v[i][1]);tip.appendChild(d)});
var head=document.createElement('div');head.textContent='step '+step;tip.insertBefore(head,tip.firstChild);
cursor.setAttribute('x1',best);cursor.setAttribute('x2',best);
var figure=svg.parentNode;figure.appendChild(tip);tip.style.display='block';
var left=best/400*box.width+10;if(left+tip.offsetWidth>box.width)left=Math.max(0,left-20-tip.offsetWidth);
tip.style.left=left+'px';tip.style.top=(svg.offsetTop+8)+'px'})});
addEventListener('hashchange',function(){var d=/^#run\d+$/.test(location.hash)&&document.querySelector(location.hash);if(d)d.open=true});
addEventListener('beforeprint',function(){document.querySelectorAll('details').forEach(function(d){d.open=true})});
})();
)js";

std::string sections_of(const RunData& run) {
  return curves(run) + quantization(run) + evaluation(run) + layers(run) + memory(run) + configuration(run) +
         environment(run);
}

// The best first. Returns why not, as HTML.
std::string sort_by_best(std::vector<RunData>& runs) {
  std::vector<RunResult> results;
  for (const RunData& run : runs)
    results.push_back(result_of(run.folder, run.summary, run.config ? &*run.config : nullptr));
  std::string why_not;
  std::vector<RunData> sorted;
  for (const size_t i : best_first(results, &why_not)) sorted.push_back(std::move(runs[i]));
  runs = std::move(sorted);
  return why_not.empty() ? "" : note("The runs are in the order given: " + escaped(why_not) + '.');
}

// Distinguishes runs of the same name by their folders.
void name_apart(std::vector<RunData>& runs) {
  std::multiset<std::string> names;
  for (const RunData& run : runs) names.insert(run.name);
  for (RunData& run : runs)
    if (names.count(run.name) > 1) run.name = run.folder;
}

std::string page(const std::string& title, const std::string& body) {
  return concat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src "
      "'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n<title>",
      escaped(title), "</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>", kStyle, "</style></head><body><main>\n",
      body, "<footer>bitgrad ", BITGRAD_VERSION,
      " &middot; docs/report.md explains every part of this page</footer>\n</main><script>", kScript,
      "</script></body></html>\n");
}

}  // namespace
}  // namespace html

std::string html_report(const std::vector<std::string>& folders) {
  using namespace html;
  require(!folders.empty(), "report", "needs at least one run folder");
  std::vector<RunData> runs;
  try {
    for (const std::string& folder : folders) runs.push_back(read_run(folder));
    if (runs.size() == 1) {
      const std::string name = runs[0].config ? runs[0].config->run.name : runs[0].name;
      return page(name + " - bitgrad", headline(runs[0]) + sections_of(runs[0]));
    }
    const std::string order = sort_by_best(runs);
    name_apart(runs);
    std::string body = concat("<h1>", runs.size(), " runs</h1>\n<p class=\"sub\"></p>\n", order) + comparison(runs);
    for (size_t i = 0; const RunData& run : runs)
      body += concat("<details class=\"run\" id=\"run", i++, "\"><summary>", escaped(run.name), "</summary>\n",
                     headline(run), sections_of(run), "</details>\n");
    return page(concat(runs.size(), " runs - bitgrad"), body);
  } catch (const JsonError& e) {  // a member of unexpected type in summary.json or run.json
    fail_with(ErrorCode::kData, "report", "a file of ", folders[0], folders.size() > 1 ? " or of the other runs" : "",
              " is not what bitgrad writes: ", e.what());
  }
}

}  // namespace bitgrad
