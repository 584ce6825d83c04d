-- A sample of all features of Lua, for the bench `args`: tables, strings, patterns, closures,
-- coroutines, metamethods, errors, loaded code.

local Point = {}
Point.__index = Point
Point.__add = function(a, b) return Point.new(a.x + b.x, a.y + b.y) end
Point.__eq = function(a, b) return a.x == b.x and a.y == b.y end
Point.__lt = function(a, b) return a.x < b.x or (a.x == b.x and a.y < b.y) end
Point.__tostring = function(p) return string.format("(%d, %5.2f)", p.x, p.y) end
Point.__concat = function(a, b) return tostring(a) .. tostring(b) end
Point.__gc = function() end
function Point.new(x, y) return setmetatable({ x = x, y = y }, Point) end

local function strings(round)
  local words = {}
  for word in ("the quick brown fox jumps over the lazy dog"):gmatch("%a+") do
    words[#words + 1] = word:upper():rep(2, "-"):sub(2, -2)
  end
  table.sort(words, function(a, b) return a > b end)
  local text = table.concat(words, ", ", 1, #words)
  text = text:gsub("(%u)(%u)", function(a, b) return b .. a:lower() end)
  assert(text:find("x%-", 1) or round)
  return #text + string.unpack("<i4sd", string.pack("<i4sd", round, text, 1.5))
end

local function sorts(round)
  local points = {}
  for i = 1, 60 do points[i] = Point.new((i * 7919 + round) % 61, i / 3) end
  table.sort(points)
  local sum = Point.new(0, 0)
  for _, point in ipairs(points) do sum = sum + point end
  return (sum .. points[1]) ~= "" and table.unpack(points, 1, 3)
end

local function generates(n)
  return coroutine.wrap(function()
    for i = 1, n do
      coroutine.yield(i, pcall(error, { code = i }))
    end
  end)
end

local function errors(round)
  local ok, message = xpcall(function()
    local nothing
    return round % 2 == 0 and nothing.field or ("text" + 1)
  end, debug.traceback)
  assert(not ok and message:find("stack traceback"))
  local file <close> = setmetatable({}, { __close = function() round = round + 1 end })
  return select("#", pcall(string.rep, "x", -1, "y"))
end

local function loads(round)
  local chunk = load(("local a, b = ... ; local t = {a, b, [%d] = 'x'} ; return #t + a // 1 | 3, function() return b end"):format(round))
  local sum, inner = chunk(round, { round })
  local dumped = load(string.dump(inner, true))
  return sum, next(inner()), dumped ~= nil
end

local function fibonacci(n) return n < 2 and n or fibonacci(n - 1) + fibonacci(n - 2) end

for round = 1, 10000 do
  strings(round)
  sorts(round)
  for i, ok, thrown in generates(5) do assert(not ok and thrown.code == i) end
  errors(round)
  loads(round)
  fibonacci(8)
  if round % 10 == 0 then collectgarbage("step", 50) end
  io.write(string.format("%5d %s\n", round, os.date("!%Y", round * 86400)))
end
