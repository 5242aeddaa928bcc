"""Parameters: settings of plugins and operators, by component, vhost and name.

The broker applies a vhost's limits (component "vhost-limits", name "limits"). The program brings other components
(`harebell serve` brings "shovel"); parameters of any other component (federation-upstream, ...) are stored and
exported, and have no effect. In RabbitMQ, policies and operator policies are parameters too; here they are separate.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final, Protocol

from harebell.broker.observers import Listener
from harebell.broker.rules.limits import check_vhost_limits
from harebell.broker.store.catalog.catalog import Catalog
from harebell.errors import InvalidArgument, NotFound
from harebell.routing.definitions import GlobalParameter, Parameter
from harebell.routing.table_values import Table
from harebell.routing.wire_limits import check_name, check_value

__all__ = ["VHOST_LIMITS", "Component", "Parameters", "no_vhost"]

VHOST_LIMITS: Final = "vhost-limits"
LIMITS: Final = "limits"  # the only name of a parameter of that component


def no_vhost(name: str) -> NotFound:
    return NotFound(f"no vhost '{name}'")


class Component(Protocol):
    """An object that acts on the parameters of one component."""

    def check(self, parameter: Parameter) -> None:
        """Raise InvalidArgument for a parameter that may not be set."""
        ...

    def changed(self, vhost: str, name: str) -> None:
        """Act on a parameter that was set or removed."""
        ...

    def status(self) -> list[dict[str, object]]:
        """The state of the component's parameters, one object each, as in RabbitMQ's HTTP API."""
        ...


class Parameters:
    """The parameters of a broker: `parameters` by (vhost, component, name), `global_parameters` by name.

    Callers may read them, and change them by the methods only. `vhosts` has the names of the virtual hosts,
    `components` the objects that act on parameters, by name. Changes go to the catalog, and to `events`.
    """

    def __init__(
        self,
        vhosts: Container[str],
        catalog: Catalog,
        events: Listener,
        components: Mapping[str, Component] | None = None,
    ) -> None:
        self._vhosts, self._catalog, self._events = vhosts, catalog, events
        self.components = dict(components or {})
        self.parameters: dict[tuple[str, str, str], Parameter] = {}
        self.global_parameters: dict[str, GlobalParameter] = {}

    def acts_on(self, component: str) -> bool:
        """Whether parameters of that component have an effect."""
        return component == VHOST_LIMITS or component in self.components

    def check(self, parameter: Parameter) -> None:
        """Raise InvalidArgument unless the parameter may be set."""
        check_name(parameter.component, "component")
        check_name(parameter.name, "parameter name")
        check_value(parameter.value, "value")
        if parameter.component in ("policy", "operator_policy"):
            raise InvalidArgument("policies may not be set using this method")
        if parameter.component == VHOST_LIMITS:
            if parameter.name != LIMITS:
                raise InvalidArgument(f"{VHOST_LIMITS}: the name must be '{LIMITS}', not '{parameter.name}'")
            if not isinstance(parameter.value, dict):
                raise InvalidArgument(f"{VHOST_LIMITS}: the value must be an object")
            check_vhost_limits(parameter.value)
        elif parameter.component in self.components:
            self.components[parameter.component].check(parameter)

    def set(self, parameter: Parameter) -> None:
        """Set the parameter. Raises NotFound for an unknown vhost, InvalidArgument for a bad value."""
        self.check(parameter)
        if parameter.vhost not in self._vhosts:
            raise no_vhost(parameter.vhost)
        self.parameters[parameter.vhost, parameter.component, parameter.name] = parameter
        self._catalog.put_parameter(parameter)
        self._events.parameter("set", parameter)
        self._notify(parameter.vhost, parameter.component, parameter.name)

    def clear(self, vhost: str, component: str, name: str) -> bool:
        """Remove the parameter. Returns whether it existed."""
        parameter = self.parameters.pop((vhost, component, name), None)
        if parameter is None:
            return False
        self._catalog.remove_parameter(vhost, component, name)
        self._events.parameter("cleared", parameter)
        self._notify(vhost, component, name)
        return True

    def set_global(self, parameter: GlobalParameter) -> None:
        """Set the global parameter. InvalidArgument for a name or a value that nobody could use."""
        check_name(parameter.name, "global parameter name")
        check_value(parameter.value, "value")
        self.global_parameters[parameter.name] = parameter
        self._catalog.put_global_parameter(parameter)
        self._events.global_parameter(parameter.name, parameter.value)

    def clear_global(self, name: str) -> bool:
        """Remove the global parameter. Returns whether it existed."""
        if self.global_parameters.pop(name, None) is None:
            return False
        self._catalog.remove_global_parameter(name)
        self._events.global_parameter(name, None)
        return True

    def set_limits(self, vhost: str, limits: Table) -> None:
        """Replace all limits of a virtual host. Raises as `set`."""
        self.set(Parameter(vhost, VHOST_LIMITS, LIMITS, dict(limits)))

    def limits(self, vhost: str) -> Table:
        """The limits of a virtual host, by name."""
        parameter = self.parameters.get((vhost, VHOST_LIMITS, LIMITS))
        return parameter.value if parameter is not None and isinstance(parameter.value, dict) else {}

    def forget_vhost(self, vhost: str) -> None:
        for key in [key for key in self.parameters if key[0] == vhost]:
            self.clear(*key)

    def restore(self, parameters: Iterable[Parameter], global_parameters: Iterable[GlobalParameter]) -> None:
        """Take parameters from the catalog."""
        self.parameters = {(each.vhost, each.component, each.name): each for each in parameters}
        self.global_parameters = {each.name: each for each in global_parameters}

    def _notify(self, vhost: str, component: str, name: str) -> None:
        actor = self.components.get(component)
        if actor is not None:
            actor.changed(vhost, name)
